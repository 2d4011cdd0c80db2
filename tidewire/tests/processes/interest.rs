//! Servers of which one holds some of the keys: which, through restarts and reloads with more of them and with fewer.

use std::collections::BTreeMap;

use super::eventually;
use super::server::Server;

type Rows = BTreeMap<String, String>;

fn rows(server: &Server, prefixes: &[&str]) -> Rows {
    let all = server.api().scan().into_iter();
    all.filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix))).collect()
}

/// Waits until a server holds what another one does of these keys, and nothing else.
fn holds(server: &Server, prefixes: &[&str], of: &Server) {
    eventually(&format!("it holds {prefixes:?} of the other"), 60, || {
        (server.api().scan() == rows(of, prefixes)).then_some(())
    });
}

fn restart(server: &mut Server, prefixes: &[&str]) {
    server.terminate();
    assert_eq!(server.ended(30).code(), Some(0));
    server.hold(prefixes);
    server.start();
}

#[test]
fn a_server_holds_exactly_its_keys_through_restarts_with_more_of_them_and_with_fewer() {
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(Server::new);
    let ports = [("a", a.replication_port()), ("b", b.replication_port()), ("c", c.replication_port())];
    a.configure(&[ports[1], ports[2]], "");
    b.configure(&[ports[0], ports[2]], "");
    c.configure(&[ports[0], ports[1]], "");
    c.hold(&["eu-"]);
    [&mut a, &mut b, &mut c].into_iter().for_each(Server::start);
    for number in 0..30 {
        assert!(a.api().wrote(&format!("eu-{number}"), "1") && b.api().wrote(&format!("us-{number}"), "1"));
    }
    assert!(c.api().wrote("eu-c", "1"));
    let (status, said) = c.api().put("us-c", b"1").expect("an answer");
    assert!(status == 400 && said.contains("widen interest"), "{status} {said}");
    holds(&c, &["eu-"], &a);
    eventually("the others hold all", 60, || {
        (a.api().scan().len() == 61 && b.api().scan() == a.api().scan()).then_some(())
    });
    assert_eq!(c.api().scan().len(), 31);
    assert_eq!(b.api().counter("tidewire_interest_left_out_records_total"), Some(30.0));
    assert_eq!(c.api().counter("tidewire_interest_covered_records_total"), Some(30.0));
    assert_eq!(c.api().counter("tidewire_reseeds_total"), Some(0.0));

    // What was left out before, and what happened to it meanwhile.
    assert!(a.api().deleted_range("us-1", "us-2") && a.api().wrote("us-3", "2"));
    restart(&mut c, &["eu-", "us-"]);
    holds(&c, &["eu-", "us-"], &a);
    assert_eq!(c.api().scan().len(), 50);
    eventually("it is ready", 30, || c.api().admin("GET", "/readyz").0.eq(&200).then_some(()));
    assert_eq!(c.api().counter("tidewire_reseeds_total"), Some(1.0));
    assert!(c.api().wrote("us-c", "1"));
    eventually("its writes of the new part arrive", 60, || a.api().value("us-c").and(b.api().value("us-c")));

    restart(&mut c, &["us-"]);
    assert_eq!(c.api().scan(), rows(&a, &["us-"]), "the rest is dropped at once");
    assert_eq!(c.api().counter("tidewire_reseeds_total"), Some(0.0));
    assert_eq!(a.api().scan().len(), 51, "nobody else drops anything");
    assert_eq!(c.api().put("eu-c", b"2").expect("an answer").0, 400);
    assert!(a.api().wrote("eu-new", "1") && a.api().wrote("us-new", "1"));
    eventually("what it holds goes on to come", 60, || c.api().value("us-new"));
    holds(&c, &["us-"], &a);

    c.kill();
    c.start();
    holds(&c, &["us-"], &a);
    eventually("the others hold the same", 60, || (a.api().scan() == b.api().scan()).then_some(()));
}

/// Has a running server read its configuration with other keys, and waits until it has taken that over.
fn reload(server: &Server, prefixes: &[&str]) {
    let taken_over = |server: &Server| server.log().matches("configuration read again").count();
    let before = taken_over(server);
    server.hold(prefixes);
    server.hang_up();
    eventually("the configuration is read again", 60, || (taken_over(server) > before).then_some(()));
}

#[test]
fn a_server_holds_exactly_the_keys_of_a_reloaded_configuration_without_a_restart() {
    let [mut a, mut b] = ["a", "b"].map(Server::new);
    let ports = [("a", a.replication_port()), ("b", b.replication_port())];
    a.configure(&[ports[1]], "");
    b.configure(&[ports[0]], "");
    [&mut a, &mut b].into_iter().for_each(Server::start);
    for number in 0..30 {
        assert!(a.api().wrote(&format!("eu-{number}"), "1") && a.api().wrote(&format!("us-{number}"), "1"));
    }
    holds(&b, &["eu-", "us-"], &a);
    let pid = b.pid();

    reload(&b, &["eu-"]);
    assert_eq!(b.api().scan(), rows(&a, &["eu-"]), "fewer, at once");
    let (status, said) = b.api().put("us-b", b"1").expect("an answer");
    assert!(status == 400 && said.contains("widen interest"), "{status} {said}");
    assert!(b.api().admin("GET", "/v1/status").1.contains("\"interest\":[\"eu-\"]"));
    assert_eq!(b.api().counter("tidewire_interest_dropped_keys_total"), Some(30.0));
    assert!(
        a.api().deleted_range("us-1", "us-2") && a.api().wrote("us-3", "2") && a.api().wrote("eu-3", "2")
    );
    eventually("what it holds goes on to come", 60, || b.api().value("eu-3").filter(|value| value == "2"));
    holds(&b, &["eu-"], &a);

    reload(&b, &["eu-", "us-"]);
    holds(&b, &["eu-", "us-"], &a);
    assert_eq!(b.api().counter("tidewire_reseeds_total"), Some(1.0));
    eventually("it is ready", 30, || b.api().admin("GET", "/readyz").0.eq(&200).then_some(()));
    assert!(b.api().wrote("us-b", "1"));
    eventually("its writes of the new part arrive", 60, || a.api().value("us-b"));
    assert!(b.pid() == pid && !b.log().contains("takes a restart"), "{}", b.log());

    reload(&b, &["us-"]);
    b.kill();
    b.start();
    holds(&b, &["us-"], &a);
    assert_eq!(b.api().counter("tidewire_reseeds_total"), Some(0.0));
}
