//! Every section and key of a configuration file, in the order in which people read them: name, kind, meaning.
//!
//! One table serves the check of a file, the environment, the example and `config show`, so they cannot disagree.

use super::{ByteSize, HumanDuration};

/// What a key holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Bool,
    /// true, false, or one of these.
    BoolOr(&'static [&'static str]),
    Count {
        most: u32,
    },
    Duration,
    Size,
    Address,
    Choice(&'static [&'static str]),
    TextList,
    /// Keys that the sink's type reads itself.
    Table,
}

/// One key of a section.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) required: bool,
    pub(super) meaning: &'static str,
}

/// One section. A repeated one is written `[[name]]`; an open one has further keys that depend on its type.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) repeated: bool,
    pub(super) open: bool,
    pub(super) meaning: &'static str,
    pub(super) keys: &'static [Key],
}

const fn key(name: &'static str, kind: Kind, meaning: &'static str) -> Key {
    Key { name, kind, required: false, meaning }
}

const fn required(name: &'static str, kind: Kind, meaning: &'static str) -> Key {
    Key { name, kind, required: true, meaning }
}

const fn section(name: &'static str, meaning: &'static str, keys: &'static [Key]) -> Section {
    Section { name, repeated: false, open: false, meaning, keys }
}

/// The whole file.
pub(super) const SECTIONS: &[Section] = &[
    section(
        "cluster",
        "Who this cluster is.",
        &[
            required("id", Kind::Text, "Required; never changes. [a-z0-9][a-z0-9_.-]{0,62}"),
            key("data_dir", Kind::Text, "Everything that is kept; relative to where the server is started."),
        ],
    ),
    section(
        "listen",
        "Addresses, as IP:PORT. Port 0 picks a free one.",
        &[
            key("http", Kind::Address, "The HTTP API."),
            key("replication", Kind::Address, "Links from other clusters."),
            key(
                "insecure_plaintext",
                Kind::Bool,
                "true allows addresses that other machines can reach, without TLS.",
            ),
            key(
                "token_file",
                Kind::Text,
                "File with the token that /v1 asks for (Authorization: Bearer); without it anybody may.",
            ),
        ],
    ),
    section(
        "limits",
        "Bounds. Sizes in B, KiB, MiB, GiB; durations in us, ms, s, m, h, d.",
        &[
            key("max_record_bytes", Kind::Size, "Key and value of one record; at most 16MiB. Above it: 413."),
            key("max_clock_skew", Kind::Duration, "How far ahead of the clock here a peer's write may be."),
            key("commit_deadline", Kind::Duration, "How long a write may take to become durable."),
            key("drain_budget", Kind::Duration, "How long a stop may take to finish what is pending."),
            key(
                "relay_after",
                Kind::Duration,
                "How long a write may wait for another cluster's before peers that forward on demand are asked; 0s: never.",
            ),
            key(
                "range_delete_keys",
                Kind::Count { most: 10_000_000 },
                "Most keys that one range delete removes; above it: 413.",
            ),
            key(
                "lease_ttl",
                Kind::Duration,
                "How long a sink goes on though its lease cannot be renewed; 3s to 10m.",
            ),
        ],
    ),
    section(
        "log",
        "The write-ahead log of each tree.",
        &[
            key("segment_bytes_min", Kind::Size, "The first segment file; the next ones double."),
            key("segment_bytes_max", Kind::Size, "Where segment files stop doubling."),
            key("pending_bytes", Kind::Size, "What may wait for the disk; at the bound writers wait."),
            key("recent_bytes", Kind::Size, "Recent groups kept in memory for those that follow the log."),
            key("linger", Kind::Duration, "Longest time that a group waits for company; at most 10ms."),
            key(
                "wal_retention",
                Kind::Duration,
                "What is older goes though somebody needs it: a peer is seeded anew, a sink halts; 0s: off.",
            ),
            key(
                "wal_max_bytes",
                Kind::Size,
                "A log that retains more raises an alarm; nothing that is needed goes. 0B: off.",
            ),
        ],
    ),
    Section {
        name: "trees",
        repeated: true,
        open: false,
        meaning: "A tree that is created at start. Repeat for each.",
        keys: &[
            required("name", Kind::Text, "Required. [a-z0-9][a-z0-9_.-]{0,62}"),
            key("partitions", Kind::Count { most: 64 }, "1 to 64; pinned when the tree is created."),
            key(
                "merge",
                Kind::Choice(&["lww"]),
                "\"lww\": the last writer wins. Pinned when the tree is created.",
            ),
            key("consistency", Kind::Choice(&["causal", "eventual"]), "\"causal\" or \"eventual\"."),
            key(
                "canary",
                Kind::Duration,
                "How often the way to each peer is measured, also while nothing is written; 0s: never.",
            ),
            key(
                "on_stall",
                Kind::Choice(&["wait", "apply_after"]),
                "A write whose dependencies do not come: \"wait\", or \"apply_after\" shows it without them.",
            ),
            key("apply_after", Kind::Duration, "How long it waits where on_stall = \"apply_after\"."),
            key(
                "dead_letter_bytes",
                Kind::Size,
                "Records that can never be applied here, parked; \"0B\": refused instead.",
            ),
            key(
                "interest",
                Kind::TextList,
                "Key prefixes to hold; empty: all. Fewer drop the rest at the next start, more take a seed.",
            ),
        ],
    },
    Section {
        name: "peers",
        repeated: true,
        open: false,
        meaning: "A cluster to exchange writes with. Who is not listed is refused. Repeat for each.",
        keys: &[
            required("id", Kind::Text, "Required: the other cluster's cluster.id."),
            key(
                "url",
                Kind::Text,
                "Its listen.replication, as http://HOST:PORT; may be missing when send = false.",
            ),
            key("send", Kind::Bool, "false: only receive from it."),
            key("receive", Kind::Bool, "false: only send to it; nothing waits for writes of it."),
            key("trees", Kind::TextList, "The trees to exchange; empty: all."),
            key(
                "forward",
                Kind::BoolOr(&["on_demand"]),
                "true: also ship what came from elsewhere, for peers that are not linked with each other; \"on_demand\": what the peer asks for.",
            ),
            key("rate_limit", Kind::Size, "Bytes of pages a second to it, over all trees; 0B: no limit."),
            key(
                "compression",
                Kind::Choice(&["auto", "none", "zstd"]),
                "\"auto\": packs while the link is slow and what is sent shrinks; \"none\", \"zstd\": never, always.",
            ),
        ],
    },
    Section {
        name: "sinks",
        repeated: true,
        open: true,
        meaning: "A destination that a tree feeds. The keys of its type stand beside these. Repeat for each.",
        keys: &[
            required(
                "name",
                Kind::Text,
                "Required; the position is kept under it. [a-z0-9][a-z0-9_.-]{0,62}",
            ),
            required("tree", Kind::Text, "Required: the tree that feeds it."),
            required("type", Kind::Text, "Required: what it is."),
            key(
                "delivery",
                Kind::Choice(&["at_least_once", "exactly_once"]),
                "\"at_least_once\", the only value so far.",
            ),
            key(
                "start",
                Kind::Choice(&["beginning", "now"]),
                "Where a new one begins: \"beginning\" of what the log retains, or \"now\".",
            ),
            key(
                "on_poison",
                Kind::Choice(&["stop", "dead_letter"]),
                "A record that is never taken: \"stop\", or \"dead_letter\" parks it and goes on.",
            ),
        ],
    },
];

/// The keys of each type of sink, beside those of every sink.
pub(super) const SINK_TYPES: &[(&str, &[Key])] = &[
    #[cfg(feature = "jsonl")]
    (
        "jsonl",
        &[required(
            "path",
            Kind::Text,
            "Required: the file that lines are appended to; \"-\": standard output.",
        )],
    ),
    #[cfg(feature = "kafka")]
    ("kafka", KAFKA),
];

#[cfg(feature = "kafka")]
const KAFKA: &[Key] = &[
    required("brokers", Kind::Text, "Required: host:port, several with commas."),
    key("topic", Kind::Text, "The topic; {tree} stands for the name of the tree. Default \"{tree}\"."),
    key("value", Kind::Choice(&["value", "json"]), "\"value\": the bytes as written; \"json\": the change."),
    key("create_topic", Kind::Bool, "Whether a missing topic is created. Default true."),
    key(
        "partitions",
        Kind::Count { most: 10_000 },
        "Of a topic that is created; default: as the brokers are set.",
    ),
    key(
        "replication",
        Kind::Count { most: 100 },
        "Of a topic that is created; default: as the brokers are set.",
    ),
    key(
        "compression",
        Kind::Choice(&["none", "lz4", "snappy", "zstd"]),
        "Of batches; zstd needs a full build.",
    ),
    key("queue_bytes", Kind::Size, "Keys and values that may wait in the client. Default \"32MiB\"."),
    key("stall_after", Kind::Duration, "Nothing arrived for so long though something waits. Default \"1m\"."),
    key("connect_timeout", Kind::Duration, "How long a start waits for brokers and topic. Default \"30s\"."),
    key("partition_check", Kind::Duration, "How often the partitions are counted. Default \"30s\"."),
    key("security", Kind::Table, "TLS and login; needs a full build. See docs/kafka.md."),
    key("librdkafka", Kind::Table, "Further settings of the client, by their names in librdkafka."),
];

/// The keys of a type of sink; none for one that is not known.
fn sink_keys(kind: &str) -> &'static [Key] {
    SINK_TYPES.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, keys)| keys)
}

impl Section {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SECTIONS.iter().find(|section| section.name == name)
    }

    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The keys that one table of this section may have: in an open one also those of the table's type.
    pub(super) fn keys_of(&self, table: &toml::Table) -> Vec<&'static Key> {
        let kind = table.get("type").and_then(toml::Value::as_str).filter(|_| self.open);
        self.keys.iter().chain(kind.map_or(&[][..], sink_keys)).collect()
    }

    /// How the section's head is written.
    pub(super) fn head(&self) -> String {
        if self.repeated { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

impl Kind {
    /// Checks a value's form; its bounds are a matter of [`validate`](super::ClusterConfig::validate).
    pub(super) fn check(self, value: &toml::Value) -> Result<(), String> {
        let fits = match (self, value) {
            (Self::Text, toml::Value::String(_))
            | (Self::Bool | Self::BoolOr(_), toml::Value::Boolean(_)) => true,
            (Self::Count { most }, toml::Value::Integer(number)) => (1..=i64::from(most)).contains(number),
            (Self::Duration, toml::Value::String(text)) => text.parse::<HumanDuration>().is_ok(),
            (Self::Size, toml::Value::String(text)) => text.parse::<ByteSize>().is_ok(),
            (Self::Address, toml::Value::String(text)) => text.parse::<std::net::SocketAddr>().is_ok(),
            (Self::Choice(choices) | Self::BoolOr(choices), toml::Value::String(text)) => {
                choices.contains(&text.as_str())
            }
            (Self::TextList, toml::Value::Array(items)) => items.iter().all(toml::Value::is_str),
            (Self::Table, toml::Value::Table(_)) => true,
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let hint = match (self, value) {
            (Self::Choice(choices) | Self::BoolOr(choices), toml::Value::String(text)) => {
                did_you_mean(text, choices.iter().copied())
            }
            _ => String::new(),
        };
        Err(format!("{} is not allowed here{hint}; allowed: {}", shown(value), self.allowed()))
    }

    fn allowed(self) -> String {
        match self {
            Self::Text => "a text in quotes".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::BoolOr(choices) => {
                let quoted: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
                format!("true, false, {}", quoted.join(", "))
            }
            Self::Count { most } => format!("a whole number from 1 to {most}"),
            Self::Duration => HumanDuration::ALLOWED.to_owned(),
            Self::Size => ByteSize::ALLOWED.to_owned(),
            Self::Address => "IP:PORT in quotes, such as \"127.0.0.1:7401\" or \"[::1]:7401\"".to_owned(),
            Self::Choice(choices) => {
                choices.iter().map(|choice| format!("{choice:?}")).collect::<Vec<_>>().join(", ")
            }
            Self::TextList => "a list of texts, such as [\"orders\"]".to_owned(),
            Self::Table => "a table of keys and values, such as { \"linger.ms\" = 20 }".to_owned(),
        }
    }
}

fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(_) => "a table".to_owned(),
        toml::Value::Array(items) if items.len() > 4 => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// `; did you mean "x"?` for the nearest candidate, if one is near.
pub(super) fn did_you_mean<'a>(given: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    let given = given.to_lowercase();
    candidates
        .map(|candidate| (strsim::jaro_winkler(&given, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map_or_else(String::new, |(_, nearest)| format!("; did you mean {nearest:?}?"))
}
