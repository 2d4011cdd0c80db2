//! [`Packing`]: which pages are packed, and why not all. Pure but for the packing itself.
//!
//! Packing costs a core what it saves a link, so it pays where the link is what everybody waits for. That is looked for at
//! each acknowledgement: something waits to be sent, the window is full, and little of what is in it waits at the peer.
//! And only where a full window takes its time; over a loopback or a short cable it never does. When most
//! acknowledgements say so, the first part of a page is tried; if it does not shrink enough, the next pages are not.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_core::transport::{Packer, wire};

/// Whether pages to a peer are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// While the link is what everybody waits for, and what is sent shrinks.
    #[default]
    Auto,
    /// Never.
    None,
    /// Always, with zstd, as far as it makes a page smaller.
    Zstd,
}

/// A part is worth unpacking if this much is left of it at most.
const PAYS: f64 = 0.8;
/// How much of what was seen before counts beside what is seen now.
const MEMORY: f64 = 15.0 / 16.0;
/// The share of acknowledgements that say that the link is slow, above which it is.
const MOSTLY: f64 = 0.75;
/// A full window that is acknowledged faster than this is on no slow link: 8 MiB in 40 ms are 200 MB/s.
const FAST: Duration = Duration::from_millis(40);
/// Pages that are not tried after one that did not shrink, at first and at most.
const REST: (u32, u32) = (8, 512);

/// What an acknowledgement tells of the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// A page waits because the window is full, not because the peer gives no credit.
    pub(crate) full: bool,
    /// Bytes in flight.
    pub(crate) in_flight: u64,
    /// Those of them that wait at the peer, by its credit.
    pub(crate) at_peer: u64,
    /// How long the page took that was acknowledged last, from here and back.
    pub(crate) took: Duration,
}

/// The judgement of one session.
#[derive(Debug)]
pub(crate) struct Packing {
    mode: Compression,
    packer: Option<Packer>,
    /// How much of late says that the link is slow, from 0 to 1.
    slow: f64,
    /// Pages that are still not tried, and how many after the next failure.
    rests: u32,
    rest: u32,
}

impl Packing {
    /// For a session; `agreed`: the peer can unpack.
    pub(crate) fn new(mode: Compression, agreed: bool) -> Self {
        let packs = agreed && mode != Compression::None;
        let packer = if packs { Packer::new() } else { None };
        Self { mode, packer, slow: 0.0, rests: 0, rest: REST.0 }
    }

    /// An acknowledgement came.
    pub(crate) fn see(&mut self, seen: Seen) {
        let slow = seen.full && seen.at_peer < seen.in_flight / 2 && seen.took >= FAST;
        self.slow = self.slow * MEMORY + if slow { 1.0 - MEMORY } else { 0.0 };
    }

    /// Packs the parts of a page where that pays. Says how many bytes there are to send.
    pub(crate) fn pack(&mut self, parts: &mut [wire::Page], bytes: u64) -> u64 {
        let Some(packer) = &mut self.packer else { return bytes };
        let always = self.mode == Compression::Zstd;
        if !always && self.slow < MOSTLY {
            return bytes;
        }
        if !always && self.rests > 0 {
            self.rests -= 1;
            return bytes;
        }
        let most = if always { 0.99 } else { PAYS };
        let mut sent = bytes;
        for (number, part) in parts.iter_mut().enumerate() {
            let (before, after) = packer.pack(part, most);
            sent = sent.saturating_sub(before.saturating_sub(after) as u64);
            if number == 0 && before == after && !always {
                self.rests = self.rest;
                self.rest = (self.rest * 2).min(REST.1);
                return sent;
            }
        }
        self.rest = REST.0;
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Seen = Seen { full: true, in_flight: 100, at_peer: 10, took: Duration::from_millis(80) };

    fn page(block: Vec<u8>) -> Vec<wire::Page> {
        let group = wire::PageGroup { closed: 1, blocks: vec![block.into()], more: false };
        vec![wire::Page { groups: vec![group], ..wire::Page::default() }]
    }

    fn packs(packing: &mut Packing, block: &[u8]) -> bool {
        let mut parts = page(block.to_vec());
        let sent = packing.pack(&mut parts, block.len() as u64);
        assert_eq!(parts[0].packed.is_empty(), sent == block.len() as u64);
        !parts[0].packed.is_empty()
    }

    fn after(mode: Compression, agreed: bool, seen: Seen) -> Packing {
        let mut packing = Packing::new(mode, agreed);
        (0..100).for_each(|_| packing.see(seen));
        packing
    }

    #[test]
    fn pages_are_packed_when_the_link_is_slow_and_never_else() {
        let text = b"a line of text ".repeat(500);
        let auto = |seen| packs(&mut after(Compression::Auto, true, seen), &text);
        assert!(auto(SLOW));
        assert!(!auto(Seen { full: false, ..SLOW }), "nothing waits for the window");
        assert!(!auto(Seen { at_peer: 60, ..SLOW }), "the peer is slow, not the link");
        assert!(!auto(Seen { took: Duration::from_millis(5), ..SLOW }), "a fast link");
        assert!(!packs(&mut after(Compression::Auto, false, SLOW), &text), "an older peer");
        assert!(!packs(&mut after(Compression::None, true, SLOW), &text));
        assert!(packs(&mut Packing::new(Compression::Zstd, true), &text), "asked for");
        assert!(!packs(&mut Packing::new(Compression::Zstd, false), &text));
    }

    #[test]
    fn a_link_that_became_fast_is_noticed() {
        let text = b"a line of text ".repeat(500);
        let mut packing = after(Compression::Auto, true, SLOW);
        (0..5).for_each(|_| packing.see(Seen { full: false, ..SLOW }));
        assert!(!packs(&mut packing, &text));
    }

    #[test]
    fn what_does_not_shrink_is_tried_more_and_more_seldom() {
        let random = tidewire_core::random::Random::from_seed(3);
        let noise: Vec<u8> = (0..8_000).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        let text = b"a line of text ".repeat(500);
        let mut packing = after(Compression::Auto, true, SLOW);
        assert!(!packs(&mut packing, &noise));
        assert_eq!((0..8).filter(|_| packs(&mut packing, &text)).count(), 0);
        assert!(!packs(&mut packing, &noise), "tried again");
        assert_eq!((0..16).filter(|_| packs(&mut packing, &text)).count(), 0);
        assert!(packs(&mut packing, &text));
        assert!(packs(&mut packing, &text), "and then every page");
    }
}
