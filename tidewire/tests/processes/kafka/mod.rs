//! Claims about the sink against a real Kafka: `scripts/test services` starts one.

mod broker;
mod topic;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::Broker;
use serde_json::{Value, json};
use topic::{Message, Topic, second_opinion};

use super::api::Api;
use super::server::Server;
use super::{eventually, now, pause, random, sized};

const PARTITIONS: i32 = 6;
const KEYS: u64 = 20_000;
/// Changes of a batch.
const BATCH: u64 = 500;
/// Keys that a range delete covers.
const RANGE: u64 = 200;

fn key(number: u64) -> String {
    format!("key-{:05}", number % KEYS)
}

fn operations(batch: u64, first: u64) -> Vec<Value> {
    let operation = |at: u64| {
        // A stride without a common divisor: the keys of a batch are distinct.
        let key = key(first + at * 37);
        match at % 10 {
            0 => json!({"op": "delete", "key": key}),
            _ => json!({"op": "set", "key": key, "value": format!("{batch}-{at}-{}", "x".repeat(80))}),
        }
    };
    (0..BATCH).map(operation).collect()
}

/// Writes all changes, kills the process three times and the broker once meanwhile.
fn write_and_kill(server: &mut Server, broker: &Broker, batches: u64) {
    let random = random("kafka");
    let at = |percent: u64| batches * percent / 100;
    std::thread::scope(|scope| {
        for batch in 0..batches {
            if [at(25), at(50), at(75)].contains(&batch) {
                server.kill();
                server.start();
            }
            if batch == at(40) {
                broker.kill();
            }
            if batch == at(55) {
                scope.spawn(|| broker.restart());
            }
            let api = server.api();
            let operations = operations(batch, random.below(KEYS));
            eventually("a batch is acknowledged", 60, || api.wrote_operations(&operations).then_some(()));
            if batch % 5 == 4 {
                let from = random.below(KEYS - RANGE);
                let (from, to) = (key(from), key(from + RANGE));
                eventually("a range delete", 60, || api.deleted_range(&from, &to).then_some(()));
            }
            pause(20);
        }
    });
}

/// A change as the tree tells it.
struct Told {
    op: String,
    key: String,
    end_key: String,
    dot: String,
}

fn told(api: &Api) -> Vec<Told> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = |change: Value| Told {
        op: text(&change["op"]),
        key: text(&change["key"]),
        end_key: text(&change["end_key"]),
        dot: text(&change["dot"]),
    };
    api.all_changes().into_iter().map(told).collect()
}

/// Reads until every dot in `wanted` has been seen and nothing more comes.
fn read(broker: &Broker, name: &str, wanted: &BTreeSet<&str>) -> Vec<Message> {
    let topic = Topic::open(&broker.address, name, PARTITIONS);
    let mut missing = wanted.clone();
    let mut messages: Vec<Message> = Vec::new();
    let (deadline, mut quiet) = (now() + Duration::from_secs(120), 0);
    while quiet < 20 || !missing.is_empty() {
        assert!(now() < deadline, "{} dots are missing, {:?} for one", missing.len(), missing.first());
        match topic.next() {
            None => quiet += 1,
            Some(message) => {
                quiet = 0;
                missing.remove(message.headers["tw-dot"].as_str());
                messages.push(message);
            }
        }
    }
    messages
}

/// The messages without those that repeat a dot for the same key.
fn fresh(messages: &[Message]) -> Vec<&Message> {
    let mut seen = BTreeSet::new();
    messages.iter().filter(|message| seen.insert((&message.headers["tw-dot"], &message.key))).collect()
}

#[test]
#[ignore = "needs Kafka: scripts/test services"]
fn needs_kafka_a_killed_broker_and_a_process_killed_three_times_lose_and_reorder_nothing() {
    let broker = Broker::given();
    let name = format!("claims-{}", std::process::id());
    let mut server = Server::new("eu-west");
    let sink = format!(
        "[[sinks]]\nname = \"to-kafka\"\ntree = \"t\"\ntype = \"kafka\"\nbrokers = \"{}\"\ntopic = \"{name}\"\n\
         partitions = {PARTITIONS}\n",
        broker.address
    );
    server.configure(&[], &sink);
    server.start();
    let changes = u64::try_from(sized(100_000, 1_000_000)).expect("fits");
    let begun = now();
    write_and_kill(&mut server, &broker, changes / BATCH);
    let written = begun.elapsed();

    let told = told(&server.api());
    let of_keys = told.iter().filter(|change| change.op != "delete_range");
    let wanted: BTreeSet<&str> = of_keys.map(|change| change.dot.as_str()).collect();
    assert!(u64::try_from(wanted.len()).expect("fits") >= changes, "{} changes", wanted.len());
    let messages = read(&broker, &name, &wanted);
    let fresh = fresh(&messages);
    println!(
        "{changes} changes written in {written:?}, all arrived after {:?}; {} messages, {} of them repeats",
        begun.elapsed(),
        messages.len(),
        messages.len() - fresh.len()
    );
    check_order(&fresh);
    check_last_values(&messages, &server.api().scan());
    check_ranges(&fresh, &told);
    check_partitions(&broker, &name, &messages);
}

/// After dropping repeated dots each key's clock readings rise.
fn check_order(fresh: &[&Message]) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for message in fresh {
        let hlc: u64 = message.headers["tw-hlc"].parse().expect("a number");
        let before = last.insert(&message.key, hlc);
        assert!(before.is_none_or(|before| before < hlc), "{message:?} comes after {before:?}");
    }
}

/// The last value of each key is the tree's; repeats included, because whoever reads sees them too.
fn check_last_values(messages: &[Message], tree: &BTreeMap<String, String>) {
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for message in messages {
        match &message.value {
            Some(value) => drop(last.insert(message.key.clone(), value.clone())),
            None => drop(last.remove(&message.key)),
        }
    }
    let differs = last.iter().zip(tree).find(|(topic, tree)| topic != tree);
    assert!(last == *tree, "{} keys and {}: {differs:?}", last.len(), tree.len());
}

/// Range deletes removed keys, each within its range, by tombstones that say so.
fn check_ranges(fresh: &[&Message], told: &[Told]) {
    let ranges: BTreeMap<&str, &Told> =
        told.iter().filter(|change| change.op == "delete_range").map(|c| (c.dot.as_str(), c)).collect();
    assert!(!ranges.is_empty(), "the workload deletes ranges");
    let mut removed = 0;
    for message in fresh.iter().filter(|message| message.headers["tw-op"] == "delete_range") {
        let range = ranges[message.headers["tw-dot"].as_str()];
        assert!((&range.key..&range.end_key).contains(&&message.key) && message.value.is_none());
        removed += 1;
    }
    assert!(removed > ranges.len(), "{removed} tombstones of {} ranges", ranges.len());
    println!("{removed} keys removed by {} range deletes", ranges.len());
}

/// A key lies where the Java client's hash puts it.
fn check_partitions(broker: &Broker, name: &str, messages: &[Message]) {
    let found: BTreeMap<&str, i32> =
        messages.iter().map(|message| (message.key.as_str(), message.partition)).collect();
    let keys: Vec<&str> = found.keys().copied().collect();
    let opinion = second_opinion(&broker.address, &format!("{name}-java"), PARTITIONS, &keys);
    for message in messages {
        assert_eq!(opinion[&message.key], message.partition, "{}", message.key);
    }
}

#[test]
#[ignore = "needs Kafka: scripts/test"]
fn needs_kafka_the_demo_feeds_a_topic_that_ends_as_the_tree_of_its_cluster() {
    let broker = Broker::given();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidewire"));
    let output = command.args(["demo", "--kafka", &broker.address]).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("the same as the tree"), "{said}");
}
