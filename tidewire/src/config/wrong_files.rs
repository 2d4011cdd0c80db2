//! Wrong files, each with the line, the key and the words that a user is told.

use super::file::parse;

/// What a wrong text must be answered with: line (0: none), key, and parts of the message.
type Case = (&'static str, usize, &'static str, &'static [&'static str]);

const ID: &str = "[cluster]\nid = \"eu-west\"\n";
const TREE: &str = "[[trees]]\nname = \"orders\"\n";
const PEER: &str = "[[peers]]\nid = \"us-east\"\nurl = \"http://127.0.0.1:7410\"\n";

/// Appended to `ID`, `TREE` and `PEER` (lines 1 to 7), so that a case is only what is wrong; line 8 is its first.
const AFTER_A_PEER: &[Case] = &[
    (
        "sned = false",
        8,
        "peers[0].sned",
        &["did you mean \"send\"", "id, url, send, receive, trees, forward"],
    ),
    ("send = \"no\"", 8, "peers[0].send", &["\"no\"", "true or false"]),
    ("trees = [\"ordres\"]", 8, "peers[0].trees", &["no tree \"ordres\"", "allowed: orders"]),
    ("trees = \"orders\"", 8, "peers[0].trees", &["a list of texts"]),
    ("send = false\nforward = true", 9, "peers[0].forward", &["send = true", "forward = false"]),
    ("[[peers]]\nid = \"us-east\"\nsend = false", 9, "peers[1].id", &["listed twice"]),
    ("[[peers]]\nid = \"eu-west\"\nsend = false", 9, "peers[1].id", &["own id"]),
    ("[[peers]]\nid = \"asia\"", 8, "peers[1].url", &["is missing", "send = false"]),
    ("[[peers]]\nurl = \"http://127.0.0.1:1\"", 8, "peers[1].id", &["is missing", "[[peers]]"]),
    ("[[peers]]\nid = \"a\"\nurl = \"https://h:1\"", 10, "peers[1].url", &["TLS", "http://HOST:PORT"]),
    ("[[peers]]\nid = \"a\"\nurl = \"10.0.0.2:1\"", 10, "peers[1].url", &["http://HOST:PORT"]),
    (
        "[[peers]]\nid = \"a\"\nurl = \"http://10.0.0.2:1\"",
        10,
        "peers[1].url",
        &["insecure_plaintext = true"],
    ),
    ("[[trees]]\nname = \"orders\"", 9, "trees[1].name", &["listed twice"]),
    ("[[trees]]\nname = \"My Orders\"", 9, "trees[1].name", &["[a-z0-9][a-z0-9_.-]{0,62}"]),
    ("[[trees]]\nname = \"b\"\npartitions = 65", 10, "trees[1].partitions", &["65", "from 1 to 64"]),
    ("[[trees]]\nname = \"b\"\nmerge = \"crdt\"", 10, "trees[1].merge", &["allowed: \"lww\""]),
    (
        "[[trees]]\nname = \"b\"\nconsistency = \"casual\"",
        10,
        "trees[1].consistency",
        &["did you mean \"causal\"", "\"causal\", \"eventual\""],
    ),
    (
        "[[trees]]\nname = \"b\"\ninterest = [\"eu/\", \"\"]",
        10,
        "trees[1].interest",
        &["at least one byte", "empty to hold all keys"],
    ),
    ("[trees]\nname = \"b\"", 8, "", &["not valid TOML"]),
    (
        "[limits]\nmax_clock_skew = 30",
        9,
        "limits.max_clock_skew",
        &["30 is not allowed", "us, ms, s, m, h, d"],
    ),
    ("[limits]\nmax_record_bytes = \"1MB\"", 9, "limits.max_record_bytes", &["\"1MB\"", "B, KiB, MiB, GiB"]),
    ("[limits]\nmax_record_bytes = \"17MiB\"", 9, "limits.max_record_bytes", &["17MiB", "1KiB to 16MiB"]),
    ("[limits]\nmax_record_bytes = \"8MiB\"", 0, "log.pending_bytes", &["4MiB", "max_record_bytes = 8MiB"]),
    ("[limits]\ndrain_bugdet = \"1s\"", 9, "limits.drain_bugdet", &["did you mean \"drain_budget\""]),
    ("[log]\nsegment_bytes_min = \"128MiB\"", 9, "log.segment_bytes_min", &["4KiB to 64MiB"]),
    ("[listen]\nhttp = \"7401\"", 9, "listen.http", &["IP:PORT"]),
    ("[listen]\nhttp = \"0.0.0.0:7401\"", 9, "listen.http", &["0.0.0.0:7401", "insecure_plaintext = true"]),
    ("[listen]\nhttp = \"127.0.0.1:7400\"", 0, "listen.replication", &["taken by listen.http"]),
    ("[lisen]\nhttp = \"127.0.0.1:1\"", 8, "lisen", &["did you mean \"listen\"", "[cluster], [listen]"]),
    (
        "[[sinks]]\nname = \"k\"\ntree = \"orders\"\ntype = \"carrier-pigeon\"\nloft = \"north\"",
        11,
        "sinks[0].type",
        &["\"carrier-pigeon\"", "allowed: \"jsonl\""],
    ),
    (
        "[[sinks]]\nname = \"k\"\ntree = \"orders\"\ntype = \"jsonl\"\npath = \"x\"\npaht = \"y\"",
        13,
        "sinks[0].paht",
        &["did you mean \"path\"", "on_poison, path"],
    ),
    (
        "[[sinks]]\nname = \"k\"\ntree = \"orders\"\ntype = \"jsonl\"\npath = \"/\"",
        12,
        "sinks[0].path",
        &["names no file"],
    ),
    (
        "[[sinks]]\nname = \"k\"\ntree = \"orders\"\ntype = \"jsonl\"",
        8,
        "sinks[0].path",
        &["is missing", "standard output"],
    ),
    (
        "[[sinks]]\nname = \"k\"\ntree = \"ordres\"\ntype = \"jsonl\"\npath = \"-\"",
        10,
        "sinks[0].tree",
        &["no tree \"ordres\""],
    ),
    (
        "[[sinks]]\nname = \"My Sink\"\ntree = \"orders\"\ntype = \"jsonl\"\npath = \"-\"",
        9,
        "sinks[0].name",
        &["[a-z0-9][a-z0-9_.-]{0,62}"],
    ),
    (
        "[[sinks]]\nname = \"k\"\ntree = \"orders\"\ntype = \"jsonl\"\npath = \"-\"\non_poison = \"skip\"",
        13,
        "sinks[0].on_poison",
        &["\"stop\", \"dead_letter\""],
    ),
];

const WHOLE: &[Case] = &[
    ("", 0, "cluster.id", &["is missing; [cluster] needs it: never changes"]),
    ("[cluster]\nid = \"EU\"", 2, "cluster.id", &["\"EU\"", "[a-z0-9]"]),
    ("id = \"eu-west\"", 1, "id", &["[cluster]"]),
    ("[cluster]\nid = \"a\"\nid = \"b\"", 3, "", &["not valid TOML", "duplicate key"]),
    ("[cluster]\nid = eu-west", 2, "", &["not valid TOML"]),
    ("[[cluster]]\nid = \"a\"", 1, "cluster", &["write it as [cluster]"]),
];

fn check(text: &str, case: &Case) {
    let (_, line, key, parts) = case;
    let error = parse(text, std::iter::empty()).expect_err(text);
    let found = error.problems().iter().find(|problem| problem.key == *key);
    assert!(found.is_some(), "no problem names {key:?}: {error}\n{text}");
    let problem = found.expect("just asserted");
    assert_eq!(problem.line.unwrap_or(0), *line, "{problem}\n{text}");
    for part in *parts {
        assert!(problem.message.contains(part), "{part:?} is not in: {problem}");
    }
    assert!(!problem.to_string().contains('\n'), "more than one line: {problem}");
}

#[test]
fn a_wrong_file_explains_itself() {
    for case in WHOLE {
        check(case.0, case);
    }
    for case in AFTER_A_PEER {
        check(&format!("{ID}{TREE}{PEER}{}", case.0), case);
    }
}

#[test]
fn one_mistake_is_one_problem() {
    for (text, ..) in AFTER_A_PEER {
        let error = parse(&format!("{ID}{TREE}{PEER}{text}"), std::iter::empty()).expect_err(text);
        assert_eq!(error.problems().len(), 1, "{error}");
    }
}

#[test]
fn exactly_once_is_refused_until_it_exists() {
    let sink = "[[sinks]]\nname = \"k\"\ntree = \"orders\"\ntype = \"jsonl\"\npath = \"-\"\ndelivery = \"exactly_once\"\n";
    check(
        &format!("{ID}{TREE}{sink}"),
        &("", 10, "sinks[0].delivery", &["does not exist yet", "\"at_least_once\""]),
    );
}

#[test]
fn the_environment_is_checked_like_the_file() {
    let with = |name: &str, value: &str| {
        parse(
            ID,
            [(name.to_owned(), value.to_owned()), ("TIDEWIRE_DEMO_SEED".to_owned(), "7".to_owned())]
                .into_iter(),
        )
    };
    let config = with("TIDEWIRE__LISTEN__INSECURE_PLAINTEXT", "true").expect("valid").config;
    assert!(config.listen.insecure_plaintext);
    let config = with("TIDEWIRE__CLUSTER__ID", "other").expect("valid").config;
    assert_eq!(config.cluster.id, "other");
    let error = with("TIDEWIRE__LISTEN__HTPP", "127.0.0.1:1").expect_err("unknown").to_string();
    assert!(error.contains("did you mean \"TIDEWIRE__LISTEN__HTTP\""), "{error}");
    let error = with("TIDEWIRE__LIMITS__DRAIN_BUDGET", "5").expect_err("no unit").to_string();
    assert!(error.contains("TIDEWIRE__LIMITS__DRAIN_BUDGET: \"5\" is not allowed"), "{error}");
}
