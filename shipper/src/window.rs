//! [`Window`]: when a page may leave. Pure.

use crate::settings::Settings;

/// The bounds of one session.
#[derive(Debug)]
pub(crate) struct Window {
    own: u64,
    credit: u64,
    page: u64,
    small_page: u64,
    small_pages: usize,
}

impl Window {
    pub(crate) fn new(settings: &Settings, credit: u64) -> Self {
        Self {
            own: settings.window_bytes,
            credit,
            page: settings
                .rate
                .as_ref()
                .map_or(settings.page_bytes, |rate| settings.page_bytes.min(rate.page_bytes())),
            small_page: settings.small_page_bytes,
            small_pages: settings.small_pages,
        }
    }

    /// Takes over what the peer grants.
    pub(crate) fn grant(&mut self, credit: u64) {
        self.credit = credit;
    }

    /// What the peer grants.
    pub(crate) fn credit(&self) -> u64 {
        self.credit
    }

    /// Whether a page of that size is small.
    pub(crate) fn is_small(&self, bytes: u64) -> bool {
        bytes < self.small_page
    }

    /// Whether a group of that size still fits into an open page.
    pub(crate) fn fits(&self, open: u64, group: u64) -> bool {
        open == 0 || open + group <= self.page
    }

    /// Whether the bounds let a page of that size leave. A single one always may once there is credit at all, so no
    /// page is too large to ever go.
    pub(crate) fn lets(&self, page: u64, in_flight: u64) -> bool {
        let allowed = self.own.min(self.credit);
        if in_flight == 0 { self.credit > 0 } else { in_flight.saturating_add(page) <= allowed }
    }

    /// Whether it is the own bound that keeps a page of that size, not the peer's credit.
    pub(crate) fn is_full(&self, page: u64, in_flight: u64) -> bool {
        in_flight > 0 && in_flight.saturating_add(page) > self.own && self.own <= self.credit
    }

    /// Whether it is better to send the open page now than to fill it.
    pub(crate) fn is_time(&self, open: u64, small_in_flight: usize) -> bool {
        small_in_flight < self.small_pages || open >= self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn window(credit: u64) -> Window {
        Window::new(&Settings::default(), credit)
    }

    #[test]
    fn credit_and_the_own_window_both_bound_what_is_in_flight() {
        assert!(window(100 * KIB).lets(60 * KIB, 40 * KIB));
        assert!(!window(100 * KIB).lets(60 * KIB, 41 * KIB));
        assert!(!window(u64::MAX).lets(KIB, 8 * KIB * KIB));
        assert!(window(1).lets(5 * KIB * KIB, 0), "a single page always may");
        assert!(!window(0).lets(1, 0), "but not without credit");
    }

    #[test]
    fn small_pages_are_sent_at_once_until_two_are_in_flight() {
        let window = window(u64::MAX);
        assert!(window.is_time(1, 0) && window.is_time(1, 1));
        assert!(!window.is_time(1, 2) && !window.is_time(1023 * KIB, 2));
        assert!(window.is_time(1024 * KIB, 2), "a full page never waits for company");
        assert!(window.is_small(255 * KIB) && !window.is_small(256 * KIB));
        assert!(window.fits(0, u64::MAX), "a large group is a page of its own");
        assert!(window.fits(600 * KIB, 424 * KIB) && !window.fits(600 * KIB, 425 * KIB));
    }
}
