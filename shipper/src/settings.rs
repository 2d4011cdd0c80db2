//! [`Settings`]: the bounds and times of one shipper.

use std::time::Duration;

use tidewire_core::sink::PumpSettings;

use crate::packing::Compression;
use crate::rate::RateLimit;

/// How one shipper goes about its work. The defaults suit links from a local network to another continent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of blocks that may be sent beyond what is acknowledged, if the peer's credit allows as much. Bounds the
    /// throughput of a long link to this much a round trip. Default 8 MiB.
    pub window_bytes: u64,
    /// Bytes at which a page is full. A larger group is a page of its own. Default 1 MiB.
    pub page_bytes: u64,
    /// A page below this is small. Default 256 KiB.
    pub small_page_bytes: u64,
    /// While fewer small pages than this are in flight, what there is is sent at once; else the next page fills until an
    /// acknowledgement comes. Default 2.
    pub small_pages: usize,
    /// How long the answer to Hello may take. Default 5 s.
    pub welcome_timeout: Duration,
    /// Without progress for this long while something is to be acknowledged, the shipper shows as waiting. Default 10 s.
    pub ack_timeout: Duration,
    /// Without any acknowledgement for this long while pages are in flight, the link is given up. More than the largest
    /// group takes on the slowest link. Default 30 s.
    pub silence_timeout: Duration,
    /// Whether pages are packed. Default: while the link is slow.
    pub compression: Compression,
    /// How fast pages may leave, shared by all links to the peer. Default: as fast as can be.
    pub rate: Option<RateLimit>,
    /// How often the peer is asked to measure the way of a promise. Default: never.
    pub canary: Option<Duration>,
    /// Of the pump. What the settings or another state of the peer must cure is tried again every 30 s.
    pub pump: PumpSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_bytes: 8 * 1024 * 1024,
            page_bytes: 1024 * 1024,
            small_page_bytes: 256 * 1024,
            small_pages: 2,
            welcome_timeout: Duration::from_secs(5),
            ack_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(30),
            compression: Compression::default(),
            rate: None,
            canary: None,
            pump: PumpSettings { halted_retry: Some(Duration::from_secs(30)), ..PumpSettings::default() },
        }
    }
}
