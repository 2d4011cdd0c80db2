//! [`SeedRecord`]: what a tree must know of its seeds after a crash. One small file beside its log and its snapshots, so
//! that whoever copies the directory copies it too. Byte by byte: `docs/format.md`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::floors::Floors;
use crate::causal::Watermark;
use crate::disk::{Disk, read_whole, write_atomically};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, Hlc, Incarnation, Offset, OriginTag, PartitionId, SeedNumber};
use crate::record::{FormatError, Interest, checksum};
use crate::tree::snapshot::Fields;

const MAGIC: &[u8; 4] = b"TWR1";
/// The same, with the keys that are held: written where that is not all of them.
const MAGIC_WITH_INTEREST: &[u8; 4] = b"TWR2";
/// The same, with the origins that were sealed out when a seed brought more keys: written where there are some.
const MAGIC_WITH_FORGONE: &[u8; 4] = b"TWR3";
const WHAT: &str = "the record of seeds";
const NAME: &str = "SEED";

/// A seed that is wanted, whether or not the log of a giver would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedWish {
    /// From whom alone; None: from whoever comes first.
    pub from: Option<ClusterId>,
}

/// More keys are held than before, and no seed has brought the rest yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tree) struct Widening {
    /// The keys of which everything is here; None: there are none.
    pub(in crate::tree) whole: Option<Interest>,
}

/// Origins that were sealed out when a seed brought more keys, and of which the giver lacked what was left out here: if they
/// return, another seed brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tree) struct Forgone {
    pub(in crate::tree) origins: BTreeSet<OriginTag>,
    /// The keys of which everything of theirs is here; None: there are none.
    pub(in crate::tree) whole: Option<Interest>,
}

/// What is known of the seeds of a tree, and of the keys that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tree) struct SeedRecord {
    /// A seed was asked for, or one was begun, and none was finished since.
    pub(in crate::tree) wish: Option<SeedWish>,
    /// The snapshot that holds the last seed. Those with lower numbers are of before it, and the log does not lead from
    /// them to here.
    pub(in crate::tree) base: Option<u64>,
    /// What the log lacks.
    pub(in crate::tree) floors: Floors,
    /// The partitions in which this log went back and goes on above what it lost, which no seed has brought yet.
    pub(in crate::tree) holes: BTreeSet<PartitionId>,
    /// The snapshot that will hold a seed if it becomes durable, and what the log lacks then.
    pub(in crate::tree) pending: Option<(u64, Floors)>,
    /// Which keys are held.
    pub(in crate::tree) held: Interest,
    /// More of them than before.
    pub(in crate::tree) widening: Option<Widening>,
    /// Whose writes more keys may lack.
    pub(in crate::tree) forgone: Option<Forgone>,
}

/// The keys of which everything is here, by two accounts.
fn both(one: Option<Interest>, other: Option<Interest>) -> Option<Interest> {
    one.zip(other).and_then(|(one, other)| one.common(&other))
}

impl SeedRecord {
    /// Takes over that the pending seed is complete.
    pub(in crate::tree) fn settle(&mut self) {
        if let Some((number, floors)) = self.pending.take() {
            self.base = Some(number);
            self.floors.join(&floors);
            self.wish = None;
            self.widening = None;
            self.holes.clear();
        }
    }

    /// The last seed that was taken over.
    pub(super) fn number(&self) -> SeedNumber {
        self.base.map_or(SeedNumber::ZERO, |snapshot| SeedNumber::new(snapshot).next())
    }

    /// Takes over which keys are held from now on. If some were not before, a seed is wanted, unless the tree is new. Says
    /// whether anything has changed.
    pub(in crate::tree) fn hold(&mut self, interest: &Interest, new: bool) -> bool {
        if self.held == *interest {
            return false;
        }
        let (whole, widened) = (self.whole(), self.widening.is_some());
        (self.held, self.widening) = (interest.clone(), None);
        if !new {
            self.widen_from(whole);
        }
        // More keys are wanted no more, and for nothing else was whoever comes asked.
        if widened && self.widening.is_none() && self.holes.is_empty() {
            self.wish.take_if(|wish| wish.from.is_none());
        }
        true
    }

    /// The keys of which everything is here; None: there are none.
    pub(in crate::tree) fn whole(&self) -> Option<Interest> {
        self.widening.as_ref().map_or_else(|| Some(self.held.clone()), |widening| widening.whole.clone())
    }

    /// Asks for a seed unless everything that is held is whole.
    fn widen_from(&mut self, whole: Option<Interest>) {
        if !whole.as_ref().is_some_and(|whole| whole.includes(&self.held)) {
            let whole = whole.and_then(|whole| whole.common(&self.held));
            self.widening = Some(Widening { whole });
            self.wish.get_or_insert(SeedWish { from: None });
        }
    }

    /// Whoever alone was to give a seed gives none any more: what was ordered is off. More keys, and a log with holes, go on
    /// to wait for a seed of whoever comes first.
    pub(in crate::tree) fn withdraw(&mut self, giver: &ClusterId) {
        if self.wish.as_ref().is_some_and(|wish| wish.from.as_ref() == Some(giver)) {
            let needed = self.widening.is_some() || !self.holes.is_empty();
            self.wish = needed.then_some(SeedWish { from: None });
        }
    }

    /// The seed that comes for more keys lacks writes of these origins, which were sealed out.
    pub(in crate::tree) fn forgo(&mut self, origins: BTreeSet<OriginTag>) {
        if origins.is_empty() {
            return;
        }
        let whole = self.whole();
        let before = self.forgone.take();
        self.forgone = Some(match before {
            None => Forgone { origins, whole },
            Some(before) => Forgone {
                origins: before.origins.union(&origins).copied().collect(),
                whole: both(before.whole, whole),
            },
        });
    }

    /// Whether writes of an origin may be lacking because it was sealed out.
    pub(in crate::tree) fn has_forgone(&self, origin: OriginTag) -> bool {
        self.forgone.as_ref().is_some_and(|forgone| forgone.origins.contains(&origin))
    }

    /// An origin that was sealed out may return: what is lacking of it takes a seed.
    pub(in crate::tree) fn let_return(&mut self, origin: OriginTag) {
        if !self.has_forgone(origin) {
            return;
        }
        let whole = both(self.whole(), self.forgone.as_ref().and_then(|forgone| forgone.whole.clone()));
        if let Some(forgone) = &mut self.forgone {
            forgone.origins.remove(&origin);
        }
        self.forgone.take_if(|forgone| forgone.origins.is_empty());
        self.widen_from(whole);
    }

    /// Whether everything about a key is here.
    pub(in crate::tree) fn is_whole(widening: Option<&Widening>, key: &[u8]) -> bool {
        widening.is_none_or(|widening| widening.whole.as_ref().is_some_and(|whole| whole.contains(key)))
    }

    /// Reads it, if there ever was a seed.
    pub(in crate::tree) fn load(
        disk: &dyn Disk,
        dir: &Path,
        incarnation: Incarnation,
    ) -> Result<Self, StorageError> {
        let path = Self::path(dir);
        let io = |error: io::Error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be read", path.display()))
                .with_source(error)
        };
        if !disk.exists(&path).map_err(io)? {
            return Ok(Self::default());
        }
        let bytes = read_whole(disk, &path).map_err(io)?;
        Self::decode(&bytes, incarnation).map_err(|error| {
            let said = format!(
                "{}: {error}; put the directory of this tree back from a copy, or remove it whole and let the peers seed it",
                path.display()
            );
            StorageError::new(StorageErrorKind::Corrupt, said)
        })
    }

    /// Replaces it; durable when it returns.
    pub(in crate::tree) fn store(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        incarnation: Incarnation,
    ) -> Result<(), StorageError> {
        let path = Self::path(dir);
        write_atomically(disk, &path, &self.encode(incarnation)).map_err(|error| {
            StorageError::new(StorageErrorKind::Io, format!("{} cannot be written", path.display()))
                .with_source(error)
        })
    }

    fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    pub(super) fn encode(&self, incarnation: Incarnation) -> Vec<u8> {
        let has_interest = !self.held.is_all() || self.widening.is_some() || self.forgone.is_some();
        let magic = match &self.forgone {
            Some(_) => MAGIC_WITH_FORGONE,
            None if has_interest => MAGIC_WITH_INTEREST,
            None => MAGIC,
        };
        let mut bytes = magic.to_vec();
        bytes.extend_from_slice(&incarnation.get().to_le_bytes());
        match &self.wish {
            None => bytes.push(0),
            Some(SeedWish { from }) => {
                let name = from.as_ref().map_or("", ClusterId::as_str);
                bytes.push(1);
                bytes.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
                bytes.extend_from_slice(name.as_bytes());
            }
        }
        bytes.push(u8::from(self.base.is_some()));
        bytes.extend_from_slice(&self.base.unwrap_or_default().to_le_bytes());
        put_floors(&mut bytes, &self.floors);
        let holes = u32::try_from(self.holes.len()).expect("partitions are bounded");
        bytes.extend_from_slice(&holes.to_le_bytes());
        self.holes.iter().for_each(|hole| bytes.extend_from_slice(&hole.get().to_le_bytes()));
        bytes.push(u8::from(self.pending.is_some()));
        if let Some((number, floors)) = &self.pending {
            bytes.extend_from_slice(&number.to_le_bytes());
            put_floors(&mut bytes, floors);
        }
        if has_interest {
            put_interest(&mut bytes, &self.held);
            match &self.widening {
                None => bytes.push(0),
                Some(widening) => put_whole(&mut bytes, widening.whole.as_ref()),
            }
        }
        if let Some(forgone) = &self.forgone {
            let count = u32::try_from(forgone.origins.len()).expect("origins are bounded");
            bytes.extend_from_slice(&count.to_le_bytes());
            forgone.origins.iter().for_each(|origin| bytes.extend_from_slice(&origin.get().to_le_bytes()));
            put_whole(&mut bytes, forgone.whole.as_ref());
        }
        let crc = checksum(incarnation.get(), &[&bytes]);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], incarnation: Incarnation) -> Result<Self, FormatError> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(FormatError::Short(WHAT))?;
        let has_forgone = body.starts_with(MAGIC_WITH_FORGONE);
        let has_interest = has_forgone || body.starts_with(MAGIC_WITH_INTEREST);
        if !has_interest && !body.starts_with(MAGIC) {
            return Err(FormatError::Magic(WHAT));
        }
        if checksum(incarnation.get(), &[body]) != u32::from_le_bytes(*crc) {
            return Err(FormatError::Checksum(WHAT));
        }
        let mut fields = Fields::new(WHAT, &body[MAGIC.len()..]);
        let odd = || FormatError::Field("the record of seeds has a field that cannot be");
        let flag = |byte: u8| if byte > 1 { Err(odd()) } else { Ok(byte == 1) };
        fields.u64()?;
        let wish = if flag(fields.u8()?)? {
            let name = std::str::from_utf8(fields.string()?).map_err(|_| odd())?;
            let from = (!name.is_empty()).then(|| ClusterId::new(name)).transpose().map_err(|_| odd())?;
            Some(SeedWish { from })
        } else {
            None
        };
        let based = flag(fields.u8()?)?;
        let base = Some(fields.u64()?).filter(|_| based);
        let floors = read_floors(&mut fields)?;
        let count = fields.count(2)?;
        let holes = (0..count).map(|_| Ok(PartitionId::new(fields.u16()?)));
        let holes = holes.collect::<Result<_, FormatError>>()?;
        let pending =
            if flag(fields.u8()?)? { Some((fields.u64()?, read_floors(&mut fields)?)) } else { None };
        let (mut held, mut widening, mut forgone) = (Interest::all(), None, None);
        if has_interest {
            held = read_interest(&mut fields)?;
            widening = read_part(&mut fields)?.map(|whole| Widening { whole });
        }
        if has_forgone {
            let count = fields.count(8)?;
            let origins = (0..count).map(|_| Ok(OriginTag::new(fields.u64()?)));
            let origins = origins.collect::<Result<_, FormatError>>()?;
            forgone = Some(Forgone { origins, whole: read_part(&mut fields)?.ok_or_else(odd)? });
        }
        fields.finish()?;
        Ok(Self { wish, base, floors, holes, pending, held, widening, forgone })
    }
}

/// What is whole: nothing, or these keys.
fn put_whole(bytes: &mut Vec<u8>, whole: Option<&Interest>) {
    bytes.push(if whole.is_some() { 2 } else { 1 });
    whole.into_iter().for_each(|whole| put_interest(bytes, whole));
}

/// The same; None: everything.
fn read_part(fields: &mut Fields<'_>) -> Result<Option<Option<Interest>>, FormatError> {
    match fields.u8()? {
        0 => Ok(None),
        1 => Ok(Some(None)),
        2 => Ok(Some(Some(read_interest(fields)?))),
        _ => Err(FormatError::Field("the record of seeds has a field that cannot be")),
    }
}

fn put_interest(bytes: &mut Vec<u8>, interest: &Interest) {
    let length = |count: usize| u32::try_from(count).expect("prefixes are bounded").to_le_bytes();
    bytes.extend_from_slice(&length(interest.prefixes().len()));
    for prefix in interest.prefixes() {
        bytes.extend_from_slice(&length(prefix.len()));
        bytes.extend_from_slice(prefix);
    }
}

fn read_interest(fields: &mut Fields<'_>) -> Result<Interest, FormatError> {
    let prefixes = (0..fields.count(4)?).map(|_| fields.string().map(<[u8]>::to_vec));
    let prefixes = prefixes.collect::<Result<Vec<_>, _>>()?;
    Interest::new(prefixes).map_err(|_| FormatError::Field("the record of seeds has a field that cannot be"))
}

fn put_floors(bytes: &mut Vec<u8>, floors: &Floors) {
    let count = u32::try_from(floors.iter().count()).expect("origins and partitions are bounded");
    bytes.extend_from_slice(&count.to_le_bytes());
    for ((origin, partition), mark) in floors.iter() {
        bytes.extend_from_slice(&origin.get().to_le_bytes());
        bytes.extend_from_slice(&partition.get().to_le_bytes());
        bytes.extend_from_slice(&mark.next.get().to_le_bytes());
        bytes.extend_from_slice(&mark.hlc.get().to_le_bytes());
    }
}

fn read_floors(fields: &mut Fields<'_>) -> Result<Floors, FormatError> {
    let mut floors = Floors::default();
    for _ in 0..fields.count(26)? {
        let (origin, partition) = (OriginTag::new(fields.u64()?), PartitionId::new(fields.u16()?));
        let mark = Watermark { next: Offset::new(fields.u64()?), hlc: Hlc::new(fields.u64()?) };
        floors.raise(origin, partition, mark);
    }
    Ok(floors)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
