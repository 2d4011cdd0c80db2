//! [`SnapshotName`]: the number of a snapshot, and the names of its file.

/// A snapshot of a tree by number; later ones are higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tree) struct SnapshotName(u64);

impl SnapshotName {
    pub(in crate::tree) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(in crate::tree) const fn number(self) -> u64 {
        self.0
    }

    /// The name of the finished file.
    pub(in crate::tree) fn file(self) -> String {
        format!("{:020}.snap", self.0)
    }

    /// The name of the file while it is being written.
    pub(in crate::tree) fn temporary(self) -> String {
        format!("{}.tmp", self.file())
    }

    /// The snapshot of a finished file.
    pub(in crate::tree) fn of_file(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(".snap").filter(|digits| digits.len() == 20)?;
        digits.parse().ok().map(Self)
    }

    /// Whether a file is what a crash left of one that was being written.
    pub(in crate::tree) fn is_temporary(name: &str) -> bool {
        name.strip_suffix(".tmp").and_then(Self::of_file).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_has_twenty_digits_and_a_temporary_one_is_told_apart() {
        let name = SnapshotName::new(42);
        assert_eq!(name.file(), "00000000000000000042.snap");
        assert_eq!(SnapshotName::of_file(&name.file()), Some(name));
        assert_eq!(SnapshotName::of_file(&name.temporary()), None);
        assert!(SnapshotName::is_temporary(&name.temporary()) && !SnapshotName::is_temporary(&name.file()));
        assert_eq!(SnapshotName::of_file("42.snap"), None);
    }
}
