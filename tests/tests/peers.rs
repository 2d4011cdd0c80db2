//! Peers that rest, return, come and go while everything runs: what holds the log, what is lost of nothing.

use std::sync::Arc;
use std::time::Duration;

use tidewire::config::TreeConfig;
use tidewire::status::{Direction, PeerSource, PeerState, PeerStatus};
use tidewire::{Cluster, ClusterConfig, ErrorKind, Peer};
use tidewire_core::disk::MemDisk;
use tidewire_core::gc::Holder;
use tidewire_core::id::ClusterId;
use tidewire_core::limits::Limits;
use tidewire_core::meta::MemMeta;
use tidewire_core::random::Random;
use tidewire_core::transport::MemNetwork;
use tidewire_tests::{SimClock, Topology, Workload, World, seeds, virtual_time};
use tokio::time::Instant;

async fn settle() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

async fn write(world: &World, at: usize, from: u32, count: u32) {
    let tree = world.sites[at].tree().expect("it runs");
    for key in from..from + count {
        tree.put(format!("key {key}"), vec![7; 300]).await.expect("written");
    }
}

fn cluster(world: &World, at: usize) -> Cluster {
    world.sites[at].cluster().expect("it runs").clone()
}

fn has(world: &World, at: usize, key: u32) -> bool {
    world.sites[at].tree().expect("it runs").get(format!("key {key}")).is_some()
}

fn link(cluster: &Cluster, peer: &str, direction: Direction) -> PeerStatus {
    let of = |link: &PeerStatus| link.id == peer && link.direction == direction;
    cluster.status().peers.into_iter().find(of).expect("the link is shown")
}

fn reason(link: &PeerStatus) -> &str {
    link.reason.as_deref().unwrap_or_default()
}

#[test]
fn f17_a_paused_peer_gets_and_gives_nothing_keeps_its_hold_over_a_restart_and_goes_on_when_resumed() {
    virtual_time(async {
        let mut world = World::new(21, 3);
        world.start_all().await;
        write(&world, 0, 0, 100).await;
        settle().await;
        cluster(&world, 0).pause_peer("c").await.expect("paused");
        write(&world, 0, 100, 200).await;
        write(&world, 2, 500, 50).await;
        settle().await;
        assert!(has(&world, 1, 299) && !has(&world, 2, 299), "b has it, c has not");
        assert!(!has(&world, 0, 549) && has(&world, 1, 549), "nor has c given any to a");

        let a = cluster(&world, 0);
        let held = a.gc("t", false).await.expect("a pass");
        assert_eq!(held.holder, Holder::Consumer("peer c".into()));
        let (send, receive) = (link(&a, "c", Direction::Send), link(&a, "c", Direction::Receive));
        assert_eq!((send.state, receive.state), (PeerState::Paused, PeerState::Paused));
        assert!(reason(&send).contains(&held.held_bytes.to_string()), "{send:?} {}", held.held_bytes);
        assert!(send.lag.entries >= 200, "{send:?}");
        let other = link(&cluster(&world, 2), "a", Direction::Send);
        assert_eq!(other.state, PeerState::Paused, "{other:?}");
        assert!(reason(&other).contains("peers resume c"), "{other:?}");
        drop(a);

        world.sites[0].crash().await;
        world.start(0).await;
        settle().await;
        assert!(!has(&world, 2, 299) && !has(&world, 0, 549), "a pause outlives a crash");
        let a = cluster(&world, 0);
        let send = link(&a, "c", Direction::Send);
        assert_eq!(send.state, PeerState::Paused);
        assert!(send.lag.entries >= 200, "{send:?}");
        assert!(a.peers().iter().any(|member| member.id == "c" && member.paused));
        let error = a.restart_peer("c").await.expect_err("it rests");
        assert_eq!(error.kind(), ErrorKind::Conflict);

        a.resume_peer("c").await.expect("resumed");
        world.demand_convergence(Duration::from_secs(120)).await;
        assert!(has(&world, 2, 299) && has(&world, 0, 549));
        assert_eq!(world.counters("tidewire_reseeds_total"), [0, 0, 0], "it came from the log");
    });
}

#[test]
fn f17_a_sealed_peer_holds_nothing_and_is_no_member_and_is_seeded_when_it_returns() {
    virtual_time(async {
        let mut world = World::new(22, 3);
        world.start_all().await;
        write(&world, 0, 0, 200).await;
        write(&world, 2, 800, 20).await;
        settle().await;
        let a = cluster(&world, 0);
        let live = a.seal_peer("c").await.expect_err("it is there");
        assert!(live.kind() == ErrorKind::Conflict && live.to_string().contains("not away"), "{live}");
        world.sites[2].crash().await;
        write(&world, 0, 200, 300).await;
        settle().await;

        let before = a.gc("t", true).await.expect("a pass");
        assert_eq!(before.holder, Holder::Consumer("peer c".into()));
        let c = ClusterId::new("c").expect("a name").tag();
        let tree = world.sites[0].tree().expect("it runs");
        assert!(tree.members().expect("declared").contains_key(&c));
        let freed = a.seal_peer("c").await.expect("sealed");
        let after = a.gc("t", false).await.expect("a pass");
        assert_eq!(freed, before.held_bytes - after.held_bytes, "it says what it frees");
        assert!(freed > 200 * 300 && after.trimmed_records > 200, "{freed} {after:?}");
        assert!(!tree.members().expect("declared").contains_key(&c));
        assert!(a.status().peers.iter().all(|link| link.id != "c"));
        drop(tree);

        // It comes back by itself: nothing of it is taken, and it is told why. So does a restart of a change nothing.
        drop(a);
        world.sites[0].crash().await;
        world.start(0).await;
        world.start(2).await;
        write(&world, 2, 900, 20).await;
        settle().await;
        assert!(!has(&world, 0, 919) && has(&world, 1, 919));
        let refused = link(&cluster(&world, 2), "a", Direction::Send);
        assert_eq!(refused.state, PeerState::Refused);
        assert!(reason(&refused).contains("sealed out by the operator of a"), "{refused:?}");
        assert!(!world.sites[0].tree().expect("it runs").members().expect("declared").contains_key(&c));

        cluster(&world, 0).resume_peer("c").await.expect("resumed");
        world.demand_convergence(Duration::from_secs(120)).await;
        assert_eq!(world.sites[2].counter("tidewire_reseeds_total"), 1, "a's log lacks what it needs");
        assert!(has(&world, 2, 499) && has(&world, 0, 919));
        assert!(world.sites[0].tree().expect("it runs").members().expect("declared").contains_key(&c));
    });
}

#[test]
fn what_was_sealed_out_does_not_come_by_a_relay_either() {
    virtual_time(async {
        // d hears of a by b and by c.
        let mut world = World::of_topology(23, Topology::Diamond);
        world.start_all().await;
        write(&world, 0, 0, 20).await;
        settle().await;
        assert!(has(&world, 3, 19));
        let d = cluster(&world, 3);
        d.seal_peer("a").await.expect("a is known, though without a link");
        write(&world, 0, 20, 20).await;
        settle().await;
        assert!(has(&world, 1, 39) && !has(&world, 3, 39), "{}", world.account());
        let why = link(&cluster(&world, 1), "d", Direction::Send);
        assert!(reason(&why).contains("writes of a are not forwarded"), "{why:?}");
        let shown = d.peers().into_iter().find(|member| member.id == "a").expect("it is shown");
        assert!(shown.sealed && shown.peer.is_some_and(|peer| !peer.send));
        d.resume_peer("a").await.expect("resumed");
        settle().await;
        assert!(has(&world, 3, 39), "{}", world.account());
        assert_eq!(d.seal_peer("nobody").await.expect_err("unknown").kind(), ErrorKind::NotFound);
        assert_eq!(d.seal_peer("d").await.expect_err("itself").kind(), ErrorKind::Invalid);
    });
}

#[test]
fn peers_that_are_paused_resumed_and_restarted_at_random_lose_nothing() {
    let mut orders = [0; 3];
    for seed in seeds(10) {
        virtual_time(async {
            let mut world = World::new(seed, 3);
            world.start_all().await;
            let workload = Workload::start(&world.sites, 2, 16, &world.random);
            for _ in 0..14 {
                tokio::time::sleep(Duration::from_micros(world.random.below(300_000))).await;
                let at = usize::try_from(world.random.below(3)).expect("three sites");
                let Some(here) = world.sites[at].cluster().cloned() else {
                    world.fault().await;
                    continue;
                };
                let peer = world.sites[(at + 1) % 3].id().to_string();
                match world.random.below(4) {
                    0 => {
                        here.pause_peer(&peer).await.expect("paused");
                        orders[0] += 1;
                    }
                    1 => {
                        here.resume_peer(&peer).await.expect("resumed");
                        orders[1] += 1;
                    }
                    2 => orders[2] += u32::from(here.restart_peer(&peer).await.is_ok()),
                    _ => world.fault().await,
                }
            }
            let (acknowledged, _) = workload.stop().await;
            world.heal().await;
            for site in &world.sites {
                let here = site.cluster().expect("it runs");
                for peer in here.peers().into_iter().filter(|peer| peer.paused) {
                    here.resume_peer(&peer.id).await.expect("resumed");
                }
            }
            world.demand_convergence(Duration::from_secs(120)).await;
            world.demand_acknowledged(&acknowledged).await;
            world.demand_verbatim().await;
        });
    }
    assert!(orders.iter().all(|count| *count > 0), "{orders:?}");
}

/// Stops a cluster, and lets go of its directory.
async fn stop(cluster: Cluster) {
    cluster.shutdown().await.expect("stopped");
}

/// Two clusters that know nobody, over starts.
struct Pair {
    random: Random,
    network: MemNetwork,
    began: Instant,
    files: [(MemDisk, MemMeta); 2],
}

impl Pair {
    fn new(seed: u64) -> Self {
        let random = Random::from_seed(seed);
        let network = MemNetwork::new(&random);
        Self { random, network, began: Instant::now(), files: Default::default() }
    }

    fn config(at: usize) -> ClusterConfig {
        let name = ["a", "b"][at];
        let mut config = ClusterConfig::new(name, format!("/data/{name}"));
        config.trees = vec![TreeConfig::new("t")];
        config
    }

    async fn open(&self, at: usize, peers: &[Peer]) -> Cluster {
        let (disk, meta) = &self.files[at];
        let config = Self::config(at);
        let id = ClusterId::new(&config.cluster.id).expect("a name");
        let builder = Cluster::builder(config)
            .disk(Arc::new(disk.clone()))
            .meta(Arc::new(meta.clone()))
            .wall(Arc::new(SimClock::new(self.began, 0)))
            .transport(Arc::new(self.network.endpoint(&id)))
            .random(self.random.fork())
            .limits(Limits::tiny())
            .simulated(Duration::from_millis(3));
        let cluster = builder.open().await.expect("opens");
        for peer in peers {
            cluster.add_peer(peer.clone()).await.expect("added");
        }
        cluster
    }
}

#[test]
fn a_peer_that_is_kept_is_there_after_a_restart_and_what_is_listed_takes_its_place() {
    virtual_time(async {
        let pair = Pair::new(24);
        let to = |name: &str| Peer::new(name, format!("mem://{name}"));
        let b = pair.open(1, &[to("a")]).await;
        let a = pair.open(0, &[]).await;
        a.keep_peer(to("b")).await.expect("kept");
        assert_eq!(a.keep_peer(to("b")).await.expect_err("twice").kind(), ErrorKind::Conflict);
        a.tree("t").await.expect("open").put("k", "1").await.expect("written");
        settle().await;
        assert!(b.tree("t").await.expect("open").get("k").is_some());
        stop(a).await;

        let a = pair.open(0, &[]).await;
        assert_eq!(a.release_unlisted_peers().await.expect("stored"), 0, "it is known");
        let source = |a: &Cluster| a.peers().iter().map(|member| member.source).collect::<Vec<_>>();
        assert_eq!(source(&a), [PeerSource::Kept]);
        a.tree("t").await.expect("open").put("k", "2").await.expect("written");
        settle().await;
        assert_eq!(b.tree("t").await.expect("open").get("k").expect("there").value, "2");
        stop(a).await;

        // The list owns it from now on: what it no longer lists is gone.
        let a = pair.open(0, &[to("b")]).await;
        assert_eq!(source(&a), [PeerSource::Listed]);
        stop(a).await;
        let a = pair.open(0, &[]).await;
        assert_eq!(source(&a), []);
        a.keep_peer(to("b")).await.expect("kept");
        a.remove_peer("b").await.expect("removed");
        assert_eq!(a.remove_peer("b").await.expect_err("gone").kind(), ErrorKind::NotFound);
        stop(a).await;
        assert_eq!(source(&pair.open(0, &[]).await), [], "removed for good");
    });
}

#[test]
fn a_reload_takes_peers_and_trees_over_names_what_it_cannot_and_an_invalid_one_changes_nothing() {
    virtual_time(async {
        let pair = Pair::new(25);
        let peer = |url: &str| Peer { trees: vec!["t".into()], ..Peer::new("b", url) };
        let (a, b) = (pair.open(0, &[]).await, pair.open(1, &[Peer::new("a", "mem://a")]).await);
        let mut wanted = Pair::config(0);
        wanted.peers = vec![Peer { url: None, send: false, ..peer("") }];
        let done = a.reload(wanted.clone()).await.expect("taken over");
        assert_eq!((done.added, done.needs_restart), (vec!["b".to_owned()], Vec::new()));
        b.tree("t").await.expect("open").put("k", "of b").await.expect("written");
        settle().await;
        assert!(a.tree("t").await.expect("open").get("k").is_some(), "it is received from");
        assert!(!a.reload(wanted.clone()).await.expect("taken over").did_something(), "the same again");

        // Sent to as well, a new tree, and a bound that takes a restart.
        let mut more = wanted.clone();
        more.peers = vec![peer("http://127.0.0.1:7400")];
        more.trees.push(TreeConfig::new("new"));
        more.limits.max_clock_skew = "3s".parse().expect("a duration");
        let done = a.reload(more.clone()).await.expect("taken over");
        assert_eq!((done.changed, done.trees), (vec!["b".to_owned()], vec!["new".to_owned()]));
        assert_eq!(done.needs_restart, ["limits.max_clock_skew"]);
        assert!(a.find_tree("new").is_some());
        let again = a.reload(more.clone()).await.expect("taken over");
        assert_eq!(again.needs_restart, ["limits.max_clock_skew"], "it still runs with the old one");

        let mut wrong = more.clone();
        wrong.peers.clear();
        wrong.trees[0].partitions = 0;
        let error = a.reload(wrong).await.expect_err("a rule is broken");
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("partitions"), "{error}");
        assert_eq!(a.peers().len(), 1, "nothing has changed");

        a.pause_peer("b").await.expect("paused");
        for key in 0..200 {
            let tree = a.tree("t").await.expect("open");
            tree.put(format!("key {key}"), vec![7; 300]).await.expect("written");
        }
        settle().await;
        more.peers.clear();
        let done = a.reload(more).await.expect("taken over");
        assert_eq!(done.removed, ["b"]);
        assert!(done.freed_bytes > 190 * 300, "{}", done.freed_bytes);
        assert!(a.peers().is_empty() && a.status().peers.is_empty());
    });
}
