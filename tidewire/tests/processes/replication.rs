//! Two servers, one of them killed again and again.

use super::load::{BATCH, entry, write_all};
use super::server::Server;
use super::{eventually, now, pause, random, sized};

/// Entries equal, nothing lost, no lag, nothing sent back to where it came from.
fn assert_converged(a: &Server, b: &Server, entries: usize) {
    let (on_a, on_b) = (a.api(), b.api());
    eventually("the digests are equal", 60, || {
        let digest = on_a.digest()?;
        (on_b.digest()? == digest && digest.1 == entries as u64).then_some(())
    });
    for (name, api) in [("a", &on_a), ("b", &on_b)] {
        eventually(&format!("{name} shows no lag"), 30, || {
            let peers = api.peers()?;
            assert_eq!(peers.len(), 2, "one link each way: {peers:?}");
            peers.iter().all(|peer| peer["lag"]["entries"] == 0).then_some(())
        });
        assert_eq!(api.counter("tidewire_own_origin_refused_total"), Some(0.0), "on {name}");
        let found = api.scan();
        let lost = (0..entries).map(entry).find(|(key, value)| found.get(key) != Some(value));
        assert_eq!((lost, found.len()), (None, entries), "on {name}");
    }
}

/// Writes on A while one of the two is killed three times.
fn write_and_kill(claim: &str, victim: usize) {
    let (random, entries) = (random(claim), sized(20_000, 200_000));
    let mut servers = Server::mesh(["a", "b"]);
    let third = (entries / BATCH / 3) as u64;
    let places: Vec<usize> = (0..3).map(|kill| (kill * third + random.below(third - 4)) as usize).collect();
    println!("{claim}: kills at batches {places:?} of {}", entries / BATCH);
    let begun = now();
    write_all(servers[0].http_port(), entries, &places, || {
        pause(random.below(30));
        servers[victim].kill();
        pause(random.below(300));
        servers[victim].start();
    });
    let written = begun.elapsed();
    let [a, b] = &servers;
    assert_converged(a, b, entries);
    println!("{claim}: {entries} entries written in {written:?}, all checked after {:?}", begun.elapsed());
}

#[test]
fn a_receiver_killed_three_times_ends_with_everything() {
    write_and_kill("a_receiver_killed_three_times_ends_with_everything", 1);
}

#[test]
fn a_sender_killed_three_times_ends_with_everything() {
    write_and_kill("a_sender_killed_three_times_ends_with_everything", 0);
}

#[test]
fn f59_a_record_at_the_highest_limit_reaches_the_peer_and_the_link_goes_on() {
    let [mut a, mut b] = [Server::new("a"), Server::new("b")];
    let limits = "max_record_bytes = \"16MiB\"\n[log]\npending_bytes = \"16MiB\"";
    a.configure(&[("b", b.replication_port())], limits);
    b.configure(&[("a", a.replication_port())], limits);
    a.start();
    b.start();
    // Key, value and header fill the limit but for a few bytes.
    let large = "x".repeat(16 * 1024 * 1024 - 100);
    assert!(a.api().wrote("large", &large), "{}", a.log());
    assert!(a.api().wrote("behind", "small"));
    eventually("what stands behind it arrives", 60, || b.api().value("behind"));
    assert!(b.api().value("large").as_deref() == Some(&large[..]), "whole");
    assert_eq!(a.api().put("larger", (large + &"x".repeat(100)).as_bytes()).expect("answered").0, 413);
    for server in [&a, &b] {
        assert!(!server.log().contains("link ended"), "{}", server.log());
    }
}
