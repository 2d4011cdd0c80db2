//! What a tree cannot apply: parked, told of, replayed or given up.
//!
//! A letter is durable before its block is appended, so replaying the log after a crash leaves out what was left out
//! before. What becomes of it is durable before it shows, too: a replayed record lives in the letter until snapshots hold
//! it, and whoever opens the tree before that applies it again.

use std::collections::BTreeMap;

use super::core::Tree;
use super::state::{GroupOutcome, State};
use super::target::{Parking, Progress};
use crate::error::{Error, ErrorKind};
use crate::id::{Dot, Lsn, PartitionId, Version};
use crate::letters::{Fate, Letter, Stretch, TreeLetters};
use crate::record::{Kind, RecordView};

impl State {
    /// What may be told of how far everything is applied.
    pub(super) fn claimed(&self) -> Progress {
        let progress = self.progress.clone();
        Progress { frontier: self.parked.claimed(&progress.frontier), ..progress }
    }

    /// Why a letter may not be applied though each of its records can be: it might bring back what was deleted and
    /// forgotten since.
    fn too_late(&self, letter: &Letter) -> Option<String> {
        let reaped = self.progress.reaped;
        let mut rest = &letter.bytes[..];
        while let Ok((record, length)) = RecordView::parse(rest) {
            // Whatever is here under the key decides by its version.
            if record.kind == Kind::Set && record.hlc <= reaped && self.find(record.key).is_none() {
                return Some(format!(
                    "it comes too late: what was deleted up to {reaped} is forgotten here, and it might bring it back; it \
                     stays parked. To have its value, write it anew; then drop the letter"
                ));
            }
            rest = &rest[length..];
        }
        None
    }

    /// Applies the records of a letter that were left out when their block was. Says how many there were.
    pub(super) fn apply_letter(&mut self, letter: &Letter) -> u64 {
        let (mut rest, mut records) = (&letter.bytes[..], 0);
        // Each was looked at before it was decided that it can be applied.
        while let Ok((record, length)) = RecordView::parse(rest) {
            let version = Version { hlc: record.hlc, origin: letter.origin };
            self.apply_record(&record, version, Lsn::ZERO, |_| true, &mut GroupOutcome::default());
            (rest, records) = (&rest[length..], records + 1);
        }
        records
    }
}

impl Tree {
    /// What cannot be applied here and waits for somebody to decide, by origin, partition and offset.
    pub fn dead_letters(&self) -> Vec<Letter> {
        self.0.letters.as_ref().map(|letters| letters.waiting()).unwrap_or_default()
    }

    /// The log is needed from here on: for what is parked, which a relay passes on, and which nobody may take for seen.
    pub fn parked_from(&self) -> Option<Lsn> {
        self.0.applied.state.read().parked.lowest_lsn()
    }

    /// Applies a letter after all, through the same gate as everything: what is wrong with it must be gone, as after an
    /// upgrade or with a higher limit. It is durable before it shows, and merged by its own version. Answers how many
    /// records it held. Readers of the log that have passed its place start anew.
    ///
    /// # Errors
    /// `NotFound` when nothing is parked under that identity; `Conflict` when it still cannot be applied, with the reason;
    /// when it cannot be stored.
    pub async fn replay_letter(&self, dot: Dot) -> Result<u64, Error> {
        let letters = self.letters()?;
        let _one = letters.turn.lock().await;
        let letter = self.waiting_letter(letters, dot)?;
        check_letter(&letter, self.0.limits.max_record_bytes, self.0.identity.partitions).map_err(
            |reason| {
                let said = format!("it still cannot be applied: {reason}; it stays parked");
                Error::new(ErrorKind::Conflict, said)
            },
        )?;
        // No snapshot is under way: one that is begun later, and reaches further, holds the record.
        let _still = self.0.snapshots.writing.lock().await;
        if let Some(why) = self.0.applied.state.read().too_late(&letter) {
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let end = self.0.applied.state.read().next_lsn;
        letters.settle(dot, Fate::Replayed(end)).await?;
        let records = {
            let mut state = self.0.applied.state.write();
            state.parked = letters.parked();
            // In one moment with what is claimed from here on.
            self.0.seeds.next_epoch();
            state.apply_letter(&letter)
        };
        self.0.applied.moved.modify(|(_, count)| *count += 1);
        tracing::info!(tree = %self.0.identity.tree, origin = %letter.origin, partition = %dot.partition, offset = %dot.offset, "a dead letter was replayed");
        Ok(records)
    }

    /// Gives a letter up: it is never applied here, and counts as seen from now on.
    ///
    /// # Errors
    /// `NotFound` when nothing is parked under that identity; when it cannot be stored.
    pub async fn drop_letter(&self, dot: Dot) -> Result<(), Error> {
        let letters = self.letters()?;
        let _one = letters.turn.lock().await;
        let letter = self.waiting_letter(letters, dot)?;
        let end = self.0.applied.state.read().next_lsn;
        letters.settle(dot, Fate::Dropped(end)).await?;
        self.0.applied.state.write().parked = letters.parked();
        self.0.applied.moved.modify(|(_, count)| *count += 1);
        tracing::warn!(tree = %self.0.identity.tree, origin = %letter.origin, partition = %dot.partition, offset = %dot.offset, "a dead letter was dropped: this record is never applied here");
        Ok(())
    }

    pub(super) async fn park_letters(&self, letters: Vec<Letter>) -> Result<(), Error> {
        let own = self.letters()?;
        let _one = own.turn.lock().await;
        let (lsn, now) = (self.0.applied.state.read().next_lsn, self.0.clock.wall_millis());
        let letters: Vec<Letter> =
            letters.into_iter().map(|letter| Letter { lsn, first_seen_ms: now, ..letter }).collect();
        for letter in &letters {
            let Dot { partition, offset, .. } = letter.dot();
            tracing::warn!(
                tree = %self.0.identity.tree,
                origin = self.origin_name(letter.origin),
                %partition,
                %offset,
                hlc = %letter.hlc,
                bytes = letter.bytes.len(),
                reason = letter.reason,
                "a record cannot be applied and is parked as a dead letter"
            );
        }
        own.park(letters).await?;
        self.0.applied.state.write().parked = own.parked();
        Ok(())
    }

    pub(super) fn cannot_park(&self, letters: &[Letter]) -> Option<Error> {
        match self.0.letters.as_deref().filter(|own| own.bytes().1 > 0) {
            None if letters.is_empty() => None,
            None => Some(Error::new(ErrorKind::Refused, "this tree keeps no dead letters")),
            Some(own) => own.refuse(letters),
        }
    }

    pub(super) fn parking(&self) -> Option<Parking> {
        let letters = self.0.letters.as_ref()?;
        let (bytes, most_bytes) = letters.bytes();
        let counts: BTreeMap<_, _> = self.0.applied.state.read().parked.counts().collect();
        (most_bytes > 0).then_some(Parking { bytes, most_bytes, counts })
    }

    /// Forgets letters that were settled, once snapshots hold what became of them.
    pub(super) async fn forget_letters(&self) {
        let Some(letters) = &self.0.letters else { return };
        let _one = letters.turn.lock().await;
        if let Err(error) = letters.forget(self.checkpoint()).await {
            tracing::warn!(tree = %self.0.identity.tree, %error, "settled dead letters are not forgotten, the next snapshot tries again");
            return;
        }
        let parked = letters.parked();
        self.0.applied.state.write().parked = parked;
    }

    fn letters(&self) -> Result<&TreeLetters, Error> {
        let nowhere = || Error::new(ErrorKind::Refused, "this tree keeps no dead letters");
        self.0.letters.as_deref().ok_or_else(nowhere)
    }

    fn waiting_letter(&self, letters: &TreeLetters, dot: Dot) -> Result<Letter, Error> {
        letters.waiting().into_iter().find(|letter| letter.dot() == dot).ok_or_else(|| {
            let (tree, origin) = (&self.0.identity.tree, self.origin_name(dot.origin));
            let said = format!(
                "nothing of {tree} is parked as {origin}/{}/{}; see `tidewire dead-letters list`",
                dot.partition, dot.offset
            );
            Error::new(ErrorKind::NotFound, said)
        })
    }
}

/// Whether all records of a letter can be applied now; if not, why.
fn check_letter(letter: &Letter, max_record_bytes: usize, partitions: u16) -> Result<(), String> {
    let (mut rest, mut counts) = (&letter.bytes[..], BTreeMap::<PartitionId, u64>::new());
    while !rest.is_empty() {
        let (record, length) = RecordView::parse(rest).map_err(|error| error.to_string())?;
        record.check().map_err(|error| error.to_string())?;
        if record.partition != PartitionId::of(record.key, partitions) {
            return Err("it is not in the partition of its key".to_owned());
        }
        if record.payload_bytes() > max_record_bytes {
            return Err(over_the_limit(record.payload_bytes(), max_record_bytes));
        }
        *counts.entry(record.partition).or_default() += 1;
        rest = &rest[length..];
    }
    let expected: BTreeMap<PartitionId, u64> = letter
        .stretches
        .iter()
        .map(|Stretch { partition, count, .. }| (*partition, u64::from(*count)))
        .collect();
    if counts == expected { Ok(()) } else { Err("its records are not those that it stands for".to_owned()) }
}

/// What is said of a record that is too large here.
fn over_the_limit(bytes: usize, limit: usize) -> String {
    format!("a record of {bytes} bytes, at most {limit} are taken: raise max_record_bytes here")
}
