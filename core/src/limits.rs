//! Every bound of the system in one place, each with its reason.
//!
//! What a configuration can change is a field of [`Limits`]; the constants are the edges within which it may.

use std::time::Duration;

/// Longest name of a tree or cluster in bytes: it becomes a folder name and a metric label.
pub const MAX_NAME_BYTES: usize = 63;
/// Longest key in bytes: keys live in memory and in every filter, so they stay small.
pub const MAX_KEY_BYTES: usize = 4 * 1024;
/// Largest value of `max_record_bytes` that a configuration may ask for.
pub const MAX_RECORD_BYTES_CEILING: usize = 16 * 1024 * 1024;
/// A block is closed when it holds this many bytes; a larger record has a block of its own.
pub const BLOCK_BYTES: usize = 256 * 1024;
/// Most partitions of a tree: each costs 14 bytes in a block that touches it.
pub const MAX_PARTITIONS: u16 = 64;
/// Partitions of a tree that says nothing else.
pub const DEFAULT_PARTITIONS: u16 = 8;
/// Most clusters that a cluster can know: bounds the dependency vector of a block at 4 KiB.
pub const MAX_KNOWN_CLUSTERS: usize = 256;
/// Most prefixes of the keys that a cluster holds of a tree: each key of a block is looked up among them.
pub const MAX_INTEREST_PREFIXES: usize = 64;
/// Most bytes of such prefixes together: they travel in every hello and its answer.
pub const MAX_INTEREST_BYTES: usize = 8 * 1024;
/// Most operations in one atomic batch.
pub const MAX_BATCH_OPERATIONS: usize = 10_000;
/// Most frames in one group: the frame header counts them in 16 bits.
pub const MAX_GROUP_FRAMES: usize = 60_000;
/// Most groups that a writer has on their way at once, where the log's provider takes more than one: each may hold as
/// much as may be pending.
pub const MAX_GROUPS_IN_FLIGHT: usize = 16;

/// The bounds that a configuration can change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Key, value and header of one record together, in bytes. Above it a write is refused (413).
    pub max_record_bytes: usize,
    /// Bytes that may wait for the committer in one tree; at the bound an append waits.
    pub pending_bytes: usize,
    /// Records that may wait for the committer in one tree.
    pub pending_records: usize,
    /// How long one group may take to become durable before it is given up on.
    pub commit_deadline: Duration,
    /// How long a stopping tree may take to make durable what is pending.
    pub drain_budget: Duration,
    /// How far ahead of the wall clock a remote write may be before it is refused.
    pub max_clock_skew: Duration,
    /// Recent groups kept in memory for followers, bytes per tree.
    pub recent_bytes: usize,
    /// Bytes that one read of the log aims at.
    pub read_bytes: usize,
    /// Smallest segment file in bytes; segments double from here.
    pub segment_bytes_min: u64,
    /// Largest segment file in bytes.
    pub segment_bytes_max: u64,
    /// Bytes of the next segment's file that are filled with zeros at once, ahead of use; 0 fills nothing.
    pub fill_slice_bytes: usize,
    /// Bytes a second that are filled at most.
    pub fill_bytes_per_second: u64,
    /// Most keys that one range delete removes at its origin, in keys that hold a value: each becomes a tombstone
    /// while the tree stands still, and a message in a sink that has no ranges.
    pub range_delete_keys: usize,
    /// How long the runner of a sink may show no sign of life before another one takes over, and it stops itself.
    pub lease_ttl: Duration,
    /// A snapshot is written when the log since the last one has more bytes than this, and than that snapshot.
    pub snapshot_log_bytes: u64,
    /// A clean stop writes a snapshot when the log since the last one has so many bytes: about a second of replay.
    pub snapshot_stop_bytes: u64,
    /// Or so many records.
    pub snapshot_stop_records: u64,
    /// Bytes of entries in one chunk of a snapshot.
    pub snapshot_chunk_bytes: usize,
    /// Bytes of entries a second that a snapshot takes up while writes go on, so that they hardly notice; 0 is no bound.
    pub snapshot_bytes_per_second: u64,
    /// How long the log is left alone after a look whether a snapshot is due.
    pub snapshot_pause: Duration,
    /// Shortest time between two passes of the collector over a log by itself.
    pub gc_floor: Duration,
    /// Longest time.
    pub gc_ceiling: Duration,
    /// What is older than this may leave a log though a consumer needs it; zero: nothing may.
    pub wal_retention: Duration,
    /// A log that retains more bytes raises an alarm and is collected with urgency; zero: no bound. Never trims past a
    /// consumer.
    pub wal_max_bytes: u64,
    /// How long a write of another cluster may wait for what it depends on before neighbours that forward on demand are
    /// asked for it; zero: none is ever asked.
    pub relay_after: Duration,
    /// Bytes of other clusters' writes that may wait in a tree to be applied, for room or for what they depend on. Then
    /// peers wait; each may bring one page all the same.
    pub apply_buffer_bytes: u64,
    /// How long the dead are kept at least though nothing older can arrive: a cluster that joins and writes before it has
    /// heard of them is not refused unless its clock is further behind than this.
    pub reap_after: Duration,
    /// Entries that are looked at under one lock when the dead are reaped.
    pub reap_slots: usize,
    /// Longest time a committer waits for company before it writes a group.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_record_bytes: 1024 * 1024,
            pending_bytes: 4 * 1024 * 1024,
            pending_records: 10_000,
            commit_deadline: Duration::from_secs(15),
            drain_budget: Duration::from_secs(75),
            max_clock_skew: Duration::from_secs(30),
            recent_bytes: 16 * 1024 * 1024,
            read_bytes: 512 * 1024,
            segment_bytes_min: 1024 * 1024,
            segment_bytes_max: 64 * 1024 * 1024,
            fill_slice_bytes: 1024 * 1024,
            fill_bytes_per_second: 512 * 1024 * 1024,
            range_delete_keys: 100_000,
            lease_ttl: Duration::from_secs(15),
            snapshot_log_bytes: 256 * 1024 * 1024,
            snapshot_stop_bytes: 64 * 1024 * 1024,
            snapshot_stop_records: 500_000,
            snapshot_chunk_bytes: 256 * 1024,
            snapshot_bytes_per_second: 24 * 1024 * 1024,
            snapshot_pause: Duration::from_secs(5),
            gc_floor: Duration::from_secs(30),
            gc_ceiling: Duration::from_hours(1),
            wal_retention: Duration::ZERO,
            wal_max_bytes: 0,
            relay_after: Duration::from_secs(5),
            apply_buffer_bytes: 16 * 1024 * 1024,
            reap_after: Duration::from_mins(1),
            reap_slots: 4096,
            linger: Duration::from_micros(50),
        }
    }
}

impl Limits {
    /// Tiny bounds, so that rollover, splitting and waiting happen all the time. For tests and simulation. The collector
    /// hardly comes by itself: most tests read whole logs.
    pub fn tiny() -> Self {
        Self {
            max_record_bytes: 64 * 1024,
            pending_bytes: 8 * 1024,
            pending_records: 64,
            recent_bytes: 4 * 1024,
            read_bytes: 2 * 1024,
            segment_bytes_min: 4 * 1024,
            segment_bytes_max: 16 * 1024,
            fill_slice_bytes: 1024,
            snapshot_log_bytes: 8 * 1024,
            snapshot_stop_bytes: 4 * 1024,
            snapshot_chunk_bytes: 256,
            snapshot_bytes_per_second: 256 * 1024,
            snapshot_pause: Duration::from_millis(200),
            gc_floor: Duration::from_hours(1),
            reap_after: Duration::ZERO,
            reap_slots: 8,
            linger: Duration::ZERO,
            ..Self::default()
        }
    }
}
