//! What a peer leaves out is asked for, never taken as seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewire::Tree;
use tidewire_core::feed::{Cursor, FeedSource};
use tidewire_core::id::{Lsn, Offset, PageId, PartitionId};
use tidewire_core::record::{Block, Group};
use tidewire_core::transport::pages::{Page, PageGroup, split};
use tidewire_core::transport::wire::{Frame, Hello, Welcome, frame::Body};
use tidewire_core::transport::{DialTarget, Link, Transport};
use tidewire_core::tree::{LogView, TreeIdentity};
use tidewire_tests::{World, virtual_time};

type Ends = BTreeMap<PartitionId, Offset>;

async fn groups_of(tree: &Tree) -> Vec<Arc<Group>> {
    let end = tree.end();
    let mut reader = tree.feed(Cursor { lsn: Lsn::ZERO, ..end });
    let mut groups = Vec::new();
    while reader.cursor().lsn < end.lsn {
        groups.extend(reader.next().await.expect("the log can be read").groups().to_vec());
    }
    groups
}

/// Where the offsets of each partition stand after some groups.
fn ends(partitions: u16, groups: &[Arc<Group>]) -> Ends {
    let mut ends: Ends = (0..partitions).map(|at| (PartitionId::new(at), Offset::ZERO)).collect();
    for run in groups.iter().flat_map(|group| group.blocks()).flat_map(|framed| framed.block.runs()) {
        ends.insert(run.partition, run.end());
    }
    ends
}

/// An honest page in itself: the groups from one index to another.
fn page(id: u64, of: &TreeIdentity, groups: &[Arc<Group>], from: usize, to: usize) -> Page {
    let group = |group: &Arc<Group>| {
        let blocks: Vec<Block> = group.blocks().iter().map(|framed| framed.block.clone()).collect();
        PageGroup { closed: group.blocks()[0].frame.closed, blocks }
    };
    Page {
        id: PageId::new(id),
        origin: of.origin(),
        incarnation: of.incarnation,
        after: ends(of.partitions, &groups[..from]).into_iter().collect(),
        groups: groups[from..to].iter().map(group).collect(),
        through: ends(of.partitions, &groups[..to]).into_iter().collect(),
    }
}

/// Says hello to the first site in the name of the second, as its shipper would.
async fn call(world: &World, of: &TreeIdentity) -> (Link, Welcome) {
    let (a, b) = (world.sites[0].id(), world.sites[1].id());
    let target = DialTarget { peer: a.clone(), url: format!("mem://{a}") };
    let mut link = world.network.endpoint(b).dial(&target).await.expect("a listens");
    let hello = Hello {
        cluster: b.to_string(),
        boot_id: 77,
        protocol_min: 1,
        protocol_max: 1,
        tree: of.tree.to_string(),
        incarnation: of.incarnation.get(),
        partitions: u32::from(of.partitions),
        merge_mode: of.merge.name().to_owned(),
        known_clusters: vec![b.to_string()],
        capabilities: Vec::new(),
        forwarded: Vec::new(),
        interest: Vec::new(),
    };
    link.sender.send(Frame::new(0, Body::Hello(hello))).await.expect("the link is open");
    let answer = link.receiver.receive().await.expect("an answer").and_then(|frame| frame.body);
    let welcome = match answer {
        Some(Body::Welcome(welcome)) => Some(welcome),
        _ => None,
    };
    (link, welcome.expect("a peer that says what is true is welcome"))
}

#[test]
fn a_page_that_begins_too_late_is_refused_by_name_and_loses_nothing() {
    virtual_time(async {
        let mut world = World::new(11, 2);
        world.network.cut(world.sites[0].id(), world.sites[1].id());
        world.start_all().await;
        let b = world.sites[1].tree().expect("it runs");
        for number in 0..12 {
            b.put(format!("k{number}"), "v").await.expect("b takes writes");
        }
        let (groups, of) = (groups_of(&b).await, b.identity().clone());
        assert_eq!(groups.len(), 12, "one write, one group");
        drop(b);
        world.sites[1].crash().await;
        world.network.heal_all();

        let a = world.sites[0].tree().expect("it runs");
        let (mut link, welcome) = call(&world, &of).await;
        // All is well with each page but that four groups are missing between the two.
        for page in [page(1, &of, &groups, 0, 4), page(2, &of, &groups, 8, 12)] {
            for part in split(&page) {
                let frame = Frame::new(welcome.session, Body::Page(part));
                link.sender.send(frame).await.expect("the link is open");
            }
        }
        let mut refused = Vec::new();
        while let Ok(Ok(Some(frame))) =
            tokio::time::timeout(Duration::from_secs(2), link.receiver.receive()).await
        {
            match frame.body {
                Some(Body::Refusal(refusal)) => refused.push(refusal.kind),
                Some(Body::Ack(ack)) => refused.extend(ack.refused.map(|refused| refused.kind)),
                _ => {}
            }
        }
        assert!(!refused.is_empty() && refused.iter().all(|kind| kind == "gap"), "{refused:?}");
        // What was admitted before goes on into the log after the link has ended.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for number in 0..12 {
            assert_eq!(a.get(format!("k{number}")).is_some(), number < 4, "k{number}");
        }
        drop(link);

        world.start(1).await;
        world.demand_convergence(Duration::from_secs(60)).await;
        assert!((0..12).all(|number| a.get(format!("k{number}")).is_some()), "something is lost");
    });
}
