//! What is written: the same keys and values for everybody.

/// How many different values there are.
const VALUES: u64 = 64;

/// Values of one size: letters and digits, so that they are text everywhere, and never the same one twice in a row.
#[derive(Clone, Debug)]
pub struct Workload {
    values: Vec<String>,
    /// Entries of one write while a backlog is loaded, where a system has such writes.
    pub batch: u64,
}

impl Workload {
    pub fn new(bytes: usize, batch: u64) -> Self {
        const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut letter = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(LETTERS[(state >> 40) as usize % LETTERS.len()])
        };
        let values = (0..VALUES).map(|_| (0..bytes).map(|_| letter()).collect()).collect();
        Self { values, batch }
    }

    /// The value of an entry.
    pub fn value(&self, entry: u64) -> &str {
        &self.values[(entry % VALUES) as usize]
    }
}

/// The key of an entry: 16 bytes, in the order of numbers.
pub fn key(entry: u64) -> String {
    format!("key-{entry:012}")
}

/// The entry of a key.
pub fn entry_of(key: &str) -> Option<u64> {
    key.strip_prefix("key-")?.parse().ok()
}
