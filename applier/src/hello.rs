//! The door: what a Hello must say before a session may begin. Pure.
//!
//! What the caller claims is compared with what is configured here, in an order that names the most basic mistake first;
//! each refusal says what to do. Nothing is stored and nothing is asked of the tree before all of it holds.

use std::collections::BTreeMap;

use tidewire_core::id::{BootId, ClusterId, Incarnation, OriginTag, TreeName};
use tidewire_core::limits::MAX_KNOWN_CLUSTERS;
use tidewire_core::record::Interest;
use tidewire_core::transport::ZSTD;
use tidewire_core::transport::wire::{Hello, PARTIAL, RELAY};
use tidewire_core::tree::TreeIdentity;

use crate::refusal::{Refusal, RefusalKind};

/// The protocol versions spoken here, lowest and highest.
pub(crate) const PROTOCOL: (u32, u32) = (1, 1);

/// Who calls, once the names are well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) peer: ClusterId,
    pub(crate) tree: TreeName,
    pub(crate) boot: BootId,
    pub(crate) incarnation: Incarnation,
    /// Whether it sends on what it is asked for.
    pub(crate) relays: bool,
    /// The other origins that it would send on.
    pub(crate) forwarded: Vec<(ClusterId, Incarnation)>,
    /// Whether it would pack parts of pages.
    pub(crate) packs: bool,
    /// Which keys it holds.
    pub(crate) interest: Interest,
    /// It waits for a seed itself, and gives none of all of them.
    pub(crate) partial: bool,
}

impl Caller {
    /// Why it cannot seed a tree here, if that is so.
    pub(crate) fn unfit(&self, held: &Interest) -> Option<String> {
        if !self.interest.includes(held) {
            return Some(format!("{} holds only {}", self.peer, self.interest));
        }
        self.partial.then(|| format!("{} waits for a snapshot itself", self.peer))
    }
}

/// What this cluster knows of the caller and the tree.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    /// This cluster.
    pub(crate) cluster: &'a ClusterId,
    /// This run of it.
    pub(crate) boot: BootId,
    /// The peers that are configured, for collisions of tags.
    pub(crate) peers: Vec<&'a ClusterId>,
    /// Whether the caller may ship the tree: None if it is no peer at all.
    pub(crate) allowed: Option<bool>,
    /// Whether the operator has paused its links.
    pub(crate) paused: bool,
    /// Whether the operator has sealed it out.
    pub(crate) sealed: bool,
    /// The tree, if it is open here, which keys of it are held, and the incarnation of the caller's log as far as something
    /// of it is applied.
    pub(crate) tree: Option<(TreeIdentity, Interest, Option<Incarnation>)>,
}

fn refuse<T>(kind: RefusalKind, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(kind, detail))
}

/// Reads who calls.
pub(crate) fn identify(hello: &Hello) -> Result<Caller, Refusal> {
    let (lowest, highest) = PROTOCOL;
    if hello.protocol_min > highest || hello.protocol_max < lowest {
        return refuse(
            RefusalKind::Protocol,
            format!(
                "the caller speaks protocol {} to {}, here it is {lowest} to {highest}: upgrade the older cluster",
                hello.protocol_min, hello.protocol_max
            ),
        );
    }
    let malformed = |what: &dyn std::fmt::Display| Refusal::new(RefusalKind::Malformed, what.to_string());
    if hello.boot_id == 0 {
        return Err(malformed(&"a hello without a boot id: upgrade the caller, or report it"));
    }
    if hello.forwarded.len() > MAX_KNOWN_CLUSTERS {
        return Err(malformed(&"a hello that would forward more origins than can be known"));
    }
    let interest = Interest::new(hello.interest.iter().cloned()).map_err(|error| malformed(&error))?;
    let forwarded = hello.forwarded.iter().map(|origin| {
        let name = ClusterId::new(&origin.name).map_err(|error| malformed(&error))?;
        Ok((name, Incarnation::new(origin.incarnation)))
    });
    Ok(Caller {
        forwarded: forwarded.collect::<Result<_, Refusal>>()?,
        partial: hello.capabilities.iter().any(|capability| capability == PARTIAL),
        relays: hello.capabilities.iter().any(|capability| capability == RELAY),
        peer: ClusterId::new(&hello.cluster).map_err(|error| malformed(&error))?,
        tree: TreeName::new(&hello.tree).map_err(|error| malformed(&error))?,
        boot: BootId::new(hello.boot_id),
        incarnation: Incarnation::new(hello.incarnation),
        interest,
        packs: hello.capabilities.iter().any(|capability| capability == ZSTD),
    })
}

/// Compares what the caller claims with what is known here.
pub(crate) fn check(hello: &Hello, caller: &Caller, known: &Known<'_>) -> Result<(), Refusal> {
    let (me, peer, tree) = (known.cluster, &caller.peer, &caller.tree);
    if peer == me && caller.boot == known.boot {
        let detail = format!("{me} has called itself: correct the url of the peer that leads back here");
        return refuse(RefusalKind::UnknownPeer, detail);
    }
    if peer == me {
        let detail =
            format!("the caller says that it is {me}, as this cluster is: stop one of the two, or rename it");
        return refuse(RefusalKind::TwoCopies, detail);
    }
    if known.sealed {
        return refuse(RefusalKind::Sealed, sealed(peer, me));
    }
    let allowed = match known.allowed {
        None => {
            return refuse(RefusalKind::UnknownPeer, format!("{peer} is not a peer of {me}: add it there"));
        }
        Some(allowed) => allowed,
    };
    if !allowed {
        return refuse(
            RefusalKind::UnknownTree,
            format!("{peer} may not ship tree {tree} to {me}: add it to the peer's trees there"),
        );
    }
    if known.paused {
        let detail = format!("{me} has paused its links with {peer}: tidewire peers resume {peer} there");
        return refuse(RefusalKind::Paused, detail);
    }
    let Some((identity, held, incarnation)) = &known.tree else {
        return refuse(RefusalKind::UnknownTree, format!("{me} has no tree {tree}: create it there"));
    };
    check_tree(hello, identity)?;
    check_interest(caller, identity, held)?;
    check_tags(hello, caller, known)?;
    match incarnation {
        Some(before) if *before != caller.incarnation => refuse(
            RefusalKind::Incarnation,
            format!(
                "the log of {tree} on {peer} is incarnation {}, {me} holds writes of {before}: the log was created anew; \
                 put the old one back, or give {peer} a new name",
                caller.incarnation
            ),
        ),
        _ => Ok(()),
    }
}

/// Why nothing of a cluster is taken that was sealed out.
pub(crate) fn sealed(peer: &ClusterId, me: &ClusterId) -> String {
    format!(
        "{peer} was sealed out by the operator of {me}, where nothing has waited for its writes since: to let it return, \
         tidewire peers resume {peer} there"
    )
}

fn check_tree(hello: &Hello, identity: &TreeIdentity) -> Result<(), Refusal> {
    let TreeIdentity { cluster: me, tree, partitions, merge, .. } = identity;
    if hello.partitions != u32::from(*partitions) {
        let theirs = hello.partitions;
        return refuse(
            RefusalKind::Partitions,
            format!(
                "tree {tree} has {theirs} partitions there and {partitions} on {me}: create one of them again"
            ),
        );
    }
    if hello.merge_mode != merge.name() {
        let theirs: String = hello.merge_mode.chars().take(32).collect();
        return refuse(
            RefusalKind::MergeMode,
            format!(
                "tree {tree} merges by {theirs:?} there and by {merge} on {me}: create one of them again"
            ),
        );
    }
    Ok(())
}

/// What a relay does not hold it cannot send on, and everybody would take that for covered.
fn check_interest(caller: &Caller, identity: &TreeIdentity, held: &Interest) -> Result<(), Refusal> {
    let TreeIdentity { cluster: me, tree, .. } = identity;
    let Caller { peer, interest: theirs, forwarded, relays, .. } = caller;
    // Who sends on what is asked for alone leaves out what it cannot send.
    if forwarded.is_empty() || *relays || theirs.includes(held) {
        return Ok(());
    }
    let detail = format!(
        "{peer} forwards and holds {theirs} of tree {tree}, {me} holds {held}: let {peer} hold those keys too, or set \
         forward = false for {me} there and let other clusters send it the rest"
    );
    refuse(RefusalKind::Interest, detail)
}

fn check_tags(hello: &Hello, caller: &Caller, known: &Known<'_>) -> Result<(), Refusal> {
    if hello.known_clusters.len() > MAX_KNOWN_CLUSTERS {
        let detail = format!(
            "the caller knows {} clusters, at most {MAX_KNOWN_CLUSTERS} can be",
            hello.known_clusters.len()
        );
        return refuse(RefusalKind::Malformed, detail);
    }
    let theirs: Vec<ClusterId> = hello
        .known_clusters
        .iter()
        .map(ClusterId::new)
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::new(RefusalKind::Malformed, error.to_string()))?;
    let forwarded = caller.forwarded.iter().map(|(name, _)| name);
    let all = theirs.iter().chain(forwarded).chain(known.peers.iter().copied()).chain([known.cluster]);
    match collision(all.map(|name| (name.tag(), name))) {
        Some((one, other)) => refuse(
            RefusalKind::TagCollision,
            format!(
                "the names {one} and {other} have the same tag, so their writes cannot be told apart: rename one"
            ),
        ),
        None => Ok(()),
    }
}

/// Two different names under one tag.
fn collision<'a>(
    names: impl Iterator<Item = (OriginTag, &'a ClusterId)>,
) -> Option<(&'a ClusterId, &'a ClusterId)> {
    let mut seen = BTreeMap::new();
    names.into_iter().find_map(|(tag, name)| {
        let before = *seen.entry(tag).or_insert(name);
        (before != name).then_some((before, name))
    })
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;
