//! [`Roll`]: who takes part in the exchange, whoever said so, and what operators have ordered about it.
//!
//! Peers are listed, by the configuration file or the program, for as long as that says so; or kept: added by an order at
//! run time, and remembered in the metadata. What is ordered about a cluster (a pause, a seal) is remembered too, listed
//! or not. What is remembered is durable before it counts. Nothing else of the cluster keeps a list of peers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::meta::{MetaChange, MetaStore};
use tidewire_core::tree::Members;

use crate::config::Peer;
use crate::status::{Member, PeerSource};

/// What the metadata remembers of one cluster, as TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Note {
    /// Its links rest until they are resumed.
    pub(super) paused: bool,
    /// It counts no more, and nothing of it is taken.
    pub(super) sealed: bool,
    /// Added at run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<Peer>,
}

/// One cluster on the roll.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// As the configuration file or the program lists it.
    pub(super) listed: Option<Peer>,
    /// What is remembered.
    pub(super) note: Note,
    /// Why what is remembered cannot be, if so: nothing is exchanged with it, and nothing is given up that is held for it.
    pub(super) bad: Option<String>,
}

impl Entry {
    /// How writes are exchanged with it, if it is a peer at all.
    pub(super) fn peer(&self) -> Option<&Peer> {
        self.listed.as_ref().or(self.note.kept.as_ref()).filter(|_| self.bad.is_none())
    }

    /// The same, unless it was sealed out.
    pub(super) fn active(&self) -> Option<&Peer> {
        self.peer().filter(|_| !self.note.sealed)
    }
}

/// Everybody who is known, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Roll(BTreeMap<ClusterId, Entry>);

impl Roll {
    /// Reads what is remembered.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub(super) async fn read(meta: &dyn MetaStore) -> Result<Self, Error> {
        let mut roll = BTreeMap::new();
        for (key, value) in meta.list(PREFIX).await? {
            let read = std::str::from_utf8(&value).ok().and_then(|text| toml::from_str::<Note>(text).ok());
            let Ok(id) = ClusterId::new(&key[PREFIX.len()..]) else {
                tracing::error!(key, "the metadata remembers a peer under what is no name; it is left alone");
                continue;
            };
            let unread = || {
                format!(
                    "what the metadata remembers as {key} cannot be read: was it written by a newer program?"
                )
            };
            let bad = read.is_none().then(unread);
            roll.insert(id, Entry { listed: None, note: read.unwrap_or_default(), bad });
        }
        Ok(Self(roll))
    }

    /// Takes over what is remembered, beside what is listed already.
    pub(super) fn remember(&mut self, remembered: Self) {
        for (id, entry) in remembered.0 {
            let known = self.0.entry(id).or_default();
            (known.note, known.bad) = (entry.note, entry.bad);
        }
    }

    /// Sets aside what was kept and breaks a rule. Answers all that is set aside, and why.
    pub(super) fn doubt(&mut self, check: impl Fn(&Peer) -> Result<(), Error>) -> Vec<(ClusterId, String)> {
        for entry in self.0.values_mut().filter(|entry| entry.bad.is_none()) {
            let broken = entry.note.kept.as_ref().and_then(|kept| check(kept).err());
            entry.bad = broken.map(|error| error.to_string());
        }
        self.doubtful().map(|(id, why)| (id.clone(), why.to_owned())).collect()
    }

    /// What is set aside, and why.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = (&ClusterId, &str)> {
        self.0.iter().filter_map(|(id, entry)| Some((id, entry.bad.as_deref()?)))
    }

    pub(super) fn get(&self, id: &ClusterId) -> Option<&Entry> {
        self.0.get(id)
    }

    /// What is remembered of a cluster.
    pub(super) fn note(&self, id: &ClusterId) -> Note {
        self.0.get(id).map(|entry| entry.note.clone()).unwrap_or_default()
    }

    /// The peer of this name.
    ///
    /// # Errors
    /// `NotFound`, with who is there.
    pub(super) fn peer(&self, id: &ClusterId) -> Result<&Peer, Error> {
        self.0.get(id).and_then(Entry::peer).ok_or_else(|| {
            let names: Vec<&str> = self.peers().map(|(id, _)| id.as_str()).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Error::new(ErrorKind::NotFound, format!("there is no peer {id}; there are: {there}"))
        })
    }

    /// Lists a peer, or takes it off the list.
    pub(super) fn list(&mut self, id: &ClusterId, peer: Option<Peer>) {
        self.0.entry(id.clone()).or_default().listed = peer;
        self.tidy(id);
    }

    /// Takes over what is remembered of a cluster from now on.
    pub(super) fn set_note(&mut self, id: &ClusterId, note: Note) {
        let entry = self.0.entry(id.clone()).or_default();
        (entry.note, entry.bad) = (note, None);
        self.tidy(id);
    }

    fn tidy(&mut self, id: &ClusterId) {
        if self.0.get(id).is_some_and(|entry| {
            entry.listed.is_none() && entry.note == Note::default() && entry.bad.is_none()
        }) {
            self.0.remove(id);
        }
    }

    /// The peers, whether or not they are paused or sealed.
    pub(super) fn peers(&self) -> impl Iterator<Item = (&ClusterId, &Peer)> {
        self.0.iter().filter_map(|(id, entry)| Some((id, entry.peer()?)))
    }

    /// The peers that are not sealed out, and whether each is paused.
    pub(super) fn active(&self) -> impl Iterator<Item = (&ClusterId, &Peer, bool)> {
        self.0.iter().filter_map(|(id, entry)| Some((id, entry.active()?, entry.note.paused)))
    }

    /// Who was sealed out.
    pub(super) fn sealed(&self) -> impl Iterator<Item = &ClusterId> {
        self.0.iter().filter(|(_, entry)| entry.note.sealed).map(|(id, _)| id)
    }

    /// Whether a tree is sent to a cluster, so that its log is held for it: also while it is paused.
    pub(super) fn sends(&self, id: &ClusterId, tree: &TreeName) -> bool {
        let entry = self.0.get(id);
        let sends = |peer: &Peer| peer.send && exchanges(peer, tree);
        entry.is_some_and(|entry| {
            entry.bad.is_some() && !entry.note.sealed || entry.active().is_some_and(sends)
        })
    }

    /// Who takes part in a tree, and who does no more.
    pub(super) fn members(&self, tree: &TreeName) -> Members {
        // What never sends here has nothing to wait for; what is known of it otherwise counts by the log.
        let joined =
            self.active().filter(|(_, peer, _)| peer.receive && exchanges(peer, tree)).map(|(id, ..)| id);
        let doubtful = self.doubtful().filter(|(id, _)| !self.note(id).sealed).map(|(id, _)| id);
        Members {
            joined: joined.chain(doubtful).cloned().collect(),
            sealed: self.sealed().cloned().collect(),
        }
    }

    /// Everybody, for people and programs.
    pub(super) fn show(&self) -> Vec<Member> {
        let show = |(id, entry): (&ClusterId, &Entry)| Member {
            id: id.to_string(),
            source: match (&entry.listed, &entry.note.kept) {
                (Some(_), _) => PeerSource::Listed,
                (None, Some(_)) => PeerSource::Kept,
                (None, None) => PeerSource::None,
            },
            paused: entry.note.paused,
            sealed: entry.note.sealed,
            peer: entry.peer().cloned(),
        };
        self.0.iter().map(show).collect()
    }
}

/// Whether a tree is among those that are exchanged with a peer.
pub(super) fn exchanges(peer: &Peer, tree: &TreeName) -> bool {
    peer.trees.is_empty() || peer.trees.iter().any(|name| name == tree.as_str())
}

const PREFIX: &str = "peer/";

/// Remembers a note, durably.
///
/// # Errors
/// When it cannot be stored; then what was remembered before still is.
pub(super) async fn store(meta: &Arc<dyn MetaStore>, id: &ClusterId, note: &Note) -> Result<(), Error> {
    let key = format!("{PREFIX}{id}");
    let change = if *note == Note::default() {
        MetaChange::delete(key)
    } else {
        let text = toml::to_string(note).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("peer {id} cannot be remembered")).with_source(error)
        })?;
        MetaChange::put(key, text.into_bytes())
    };
    Ok(meta.commit(vec![change]).await?)
}

#[cfg(test)]
mod tests {
    use tidewire_core::meta::MemMeta;

    use super::*;

    fn id(name: &str) -> ClusterId {
        ClusterId::new(name).expect("a name")
    }

    #[tokio::test]
    async fn what_is_remembered_is_read_again_and_an_empty_note_is_nothing() {
        let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
        let peer = Peer { trees: vec!["t".into()], ..Peer::new("b", "http://127.0.0.1:1") };
        let kept = Note { kept: Some(peer.clone()), ..Note::default() };
        let sealed = Note { sealed: true, paused: true, kept: None };
        store(&meta, &id("b"), &kept).await.expect("stored");
        store(&meta, &id("c"), &sealed).await.expect("stored");
        store(&meta, &id("d"), &Note::default()).await.expect("stored");
        let roll = Roll::read(meta.as_ref()).await.expect("read");
        assert_eq!(roll.note(&id("b")), kept);
        assert_eq!(roll.note(&id("c")), sealed);
        assert_eq!((roll.show().len(), roll.peers().count()), (2, 1));
        assert_eq!(roll.peer(&id("b")).expect("a peer"), &peer);
        store(&meta, &id("b"), &Note::default()).await.expect("stored");
        assert_eq!(Roll::read(meta.as_ref()).await.expect("read").show().len(), 1);
    }

    #[tokio::test]
    async fn what_nobody_can_read_is_no_empty_roll() {
        let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
        let change = MetaChange::put("peer/b", "paused = true\nsince = 7\n");
        meta.commit(vec![change]).await.expect("stored");
        let mut roll = Roll::read(meta.as_ref()).await.expect("read");
        let (doubtful, tree) = (roll.doubt(|_| Ok(())), TreeName::new("t").expect("a name"));
        assert!(doubtful.len() == 1 && doubtful[0].1.contains("peer/b"), "{doubtful:?}");
        // It may have been paused or sealed: whoever lists it does not know.
        roll.list(&id("b"), Some(Peer::new("b", "http://127.0.0.1:1")));
        assert_eq!(roll.active().count(), 0);
        assert!(roll.sends(&id("b"), &tree) && roll.members(&tree).joined.contains(&id("b")));
        roll.set_note(&id("b"), Note::default());
        assert_eq!(roll.active().count(), 1);
    }

    #[test]
    fn what_is_listed_wins_over_what_is_kept_and_a_sealed_cluster_is_no_member() {
        let mut roll = Roll::default();
        let (old, new) = (Peer::new("b", "http://127.0.0.1:1"), Peer::new("b", "http://127.0.0.1:2"));
        roll.set_note(&id("b"), Note { kept: Some(old.clone()), ..Note::default() });
        roll.list(&id("b"), Some(new.clone()));
        assert_eq!(roll.peer(&id("b")).expect("a peer"), &new);
        roll.list(&id("b"), None);
        assert_eq!(roll.peer(&id("b")).expect("a peer"), &old);
        let tree = TreeName::new("t").expect("a name");
        assert!(roll.sends(&id("b"), &tree) && roll.members(&tree).joined.contains(&id("b")));
        roll.set_note(&id("b"), Note { sealed: true, kept: Some(old), ..Note::default() });
        assert!(!roll.sends(&id("b"), &tree), "a log holds nothing for a sealed cluster");
        let members = roll.members(&tree);
        assert!(members.joined.is_empty() && members.sealed.contains(&id("b")));
        roll.set_note(&id("b"), Note::default());
        assert!(roll.show().is_empty());
    }
}
