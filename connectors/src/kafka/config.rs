//! [`KafkaConfig`]: what a Kafka sink is told, and the rules that it keeps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use tidewire_core::error::SinkError;
use tidewire_core::units::{ByteSize, HumanDuration};

use super::client;
use super::topic_name;
use crate::InvalidSettings;

/// What the value of a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueFormat {
    /// The bytes of the value, as they were written.
    #[default]
    Value,
    /// The change as JSON, as `watch` prints it.
    Json,
}

/// How batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Snappy.
    Snappy,
    /// Zstandard; in builds with the feature `full` only.
    Zstd,
}

impl Compression {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }
}

/// How often a change may arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaDelivery {
    /// Once, and again after a failure.
    #[default]
    AtLeastOnce,
    /// Once; refused until it exists.
    ExactlyOnce,
}

/// How the connection to the brokers is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityProtocol {
    /// TLS.
    Ssl,
    /// TLS, and a login.
    SaslSsl,
    /// A login without TLS: whoever listens reads everything.
    SaslPlaintext,
}

/// TLS and login; in builds with the feature `full` only. Secrets come from files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSecurity {
    /// `ssl`, `sasl_ssl` or `sasl_plaintext`.
    pub protocol: SecurityProtocol,
    /// The certificates that sign the brokers' ones. Default: those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The certificate of this client, for brokers that ask for one.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    #[serde(default)]
    pub mechanism: Option<String>,
    /// Who logs in.
    #[serde(default)]
    pub username: Option<String>,
    /// The file that holds the password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
}

/// The settings of a Kafka sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where brokers are found: `host:port`, several with commas. Required.
    pub brokers: String,
    /// The topic; `{tree}` stands for the name of the tree. Default `{tree}`.
    #[serde(default = "default_topic")]
    pub topic: String,
    /// What the value of a message is. Default `value`.
    #[serde(default)]
    pub value: ValueFormat,
    /// Whether a missing topic is created. Default true.
    #[serde(default = "default_true")]
    pub create_topic: bool,
    /// Partitions of a topic that is created, 1 to 10,000. Default: as the brokers are set.
    #[serde(default)]
    pub partitions: Option<u32>,
    /// Replicas of a topic that is created, 1 to 100. Default: as the brokers are set.
    #[serde(default)]
    pub replication: Option<u16>,
    /// How batches are compressed. Default `none`.
    #[serde(default)]
    pub compression: Compression,
    /// How often a change may arrive. Default `at_least_once`, the only one that there is.
    #[serde(default)]
    pub delivery: KafkaDelivery,
    /// Bytes of keys and values that may wait in the client, 64 KiB to 1 GiB; above it the sink waits. Default 32 MiB.
    #[serde(default = "default_queue")]
    pub queue_bytes: ByteSize,
    /// Nothing was delivered for this long though something waits: the run fails visibly and is tried again. 1 s to
    /// 1 h. Default 60 s.
    #[serde(default = "default_stall")]
    pub stall_after: HumanDuration,
    /// How long a run waits for the brokers and the topic at its start, 1 s to 10 min. Default 30 s.
    #[serde(default = "default_connect")]
    pub connect_timeout: HumanDuration,
    /// How often the number of partitions is looked up, 100 ms to 1 h. Default 30 s.
    #[serde(default = "default_check")]
    pub partition_check: HumanDuration,
    /// TLS and login. Default: neither.
    #[serde(default)]
    pub security: Option<KafkaSecurity>,
    /// Further settings of librdkafka by their names there; those that the sink's promises rest on are refused.
    #[serde(default, deserialize_with = "plain_values")]
    pub librdkafka: BTreeMap<String, String>,
}

fn default_topic() -> String {
    "{tree}".to_owned()
}

const fn default_true() -> bool {
    true
}

const fn default_queue() -> ByteSize {
    ByteSize::new(32 << 20)
}

fn default_stall() -> HumanDuration {
    Duration::from_secs(60).into()
}

fn default_connect() -> HumanDuration {
    Duration::from_secs(30).into()
}

fn default_check() -> HumanDuration {
    Duration::from_secs(30).into()
}

/// Takes numbers and booleans too, because `linger.ms = 20` is how people write it.
fn plain_values<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text, a whole number or a boolean")]
    enum Plain {
        Text(String),
        Number(i64),
        Flag(bool),
    }
    let values = BTreeMap::<String, Plain>::deserialize(from)?;
    let text = |value| match value {
        Plain::Text(text) => text,
        Plain::Number(number) => number.to_string(),
        Plain::Flag(flag) => flag.to_string(),
    };
    Ok(values.into_iter().map(|(key, value)| (key, text(value))).collect())
}

impl KafkaConfig {
    /// The defaults for these brokers and this topic.
    pub fn new(brokers: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: topic.into(),
            value: ValueFormat::default(),
            create_topic: default_true(),
            partitions: None,
            replication: None,
            compression: Compression::default(),
            delivery: KafkaDelivery::default(),
            queue_bytes: default_queue(),
            stall_after: default_stall(),
            connect_timeout: default_connect(),
            partition_check: default_check(),
            security: None,
            librdkafka: BTreeMap::new(),
        }
    }

    /// The settings of the client that a sink with these settings uses; for whoever wants to compare with it.
    ///
    /// # Errors
    /// When a secret cannot be read.
    pub fn client(&self) -> Result<rdkafka::ClientConfig, SinkError> {
        client::producer(self)
    }

    /// Checks every rule and hands the settings back unchanged. Reads no file and reaches no broker.
    ///
    /// # Errors
    /// One problem for each broken rule.
    pub fn validate(self) -> Result<Self, InvalidSettings> {
        let mut problems = Vec::new();
        self.check_destination(&mut problems);
        self.check_ranges(&mut problems);
        self.check_security(&mut problems);
        if problems.is_empty() {
            client::check(&self, &mut problems);
        }
        let problems = problems.into_iter().map(|(key, said)| (key.to_owned(), said)).collect();
        InvalidSettings::unless_empty(problems)?;
        Ok(self)
    }

    fn check_destination(&self, problems: &mut Vec<(&str, String)>) {
        if self.brokers.split(',').any(|broker| broker.trim().is_empty()) {
            problems.push(("brokers", "name at least one broker as host:port, several with commas".into()));
        }
        if let Err(said) = topic_name::check(&self.topic) {
            problems.push(("topic", said));
        }
        if self.delivery == KafkaDelivery::ExactlyOnce {
            let said =
                "exactly_once does not exist yet; use at_least_once and drop repeated dots (header tw-dot)";
            problems.push(("delivery", said.into()));
        }
        let owned = self.librdkafka.keys().filter(|key| client::OWNED.contains(&key.as_str()));
        problems.extend(owned.map(|key| {
            let said =
                format!("{key:?} is set by the sink itself, or by a setting of its own; remove it here");
            ("librdkafka", said)
        }));
    }

    fn check_ranges(&self, problems: &mut Vec<(&str, String)>) {
        let given = |given: Option<String>| given.unwrap_or_default();
        if self.partitions.is_some_and(|count| !(1..=10_000).contains(&count)) {
            let count = given(self.partitions.map(|count| count.to_string()));
            problems.push(("partitions", format!("{count} is out of range; allowed: 1 to 10000")));
        }
        if self.replication.is_some_and(|count| !(1..=100).contains(&count)) {
            let count = given(self.replication.map(|count| count.to_string()));
            problems.push(("replication", format!("{count} is out of range; allowed: 1 to 100")));
        }
        if !(64 << 10..=1 << 30).contains(&self.queue_bytes.get()) {
            let said = format!("{} is out of range; allowed: 64KiB to 1GiB", self.queue_bytes);
            problems.push(("queue_bytes", said));
        }
        let spans = [
            ("stall_after", self.stall_after, 1_000, 3_600),
            ("connect_timeout", self.connect_timeout, 1_000, 600),
            ("partition_check", self.partition_check, 100, 3_600),
        ];
        for (key, given, least_ms, most_secs) in spans {
            let (least, most) = (Duration::from_millis(least_ms), Duration::from_secs(most_secs));
            if !(least..=most).contains(&given.get()) {
                let (least, most) = (HumanDuration::from(least), HumanDuration::from(most));
                problems.push((key, format!("{given} is out of range; allowed: {least} to {most}")));
            }
        }
    }

    fn check_security(&self, problems: &mut Vec<(&str, String)>) {
        const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
        let full = cfg!(feature = "kafka-full");
        if !full && self.compression == Compression::Zstd {
            let said = "this build has no zstd; build with the feature `full`, or use lz4";
            problems.push(("compression", said.into()));
        }
        let Some(security) = &self.security else { return };
        if !full {
            let said = "this build has neither TLS nor SASL for Kafka; build with the feature `full`";
            problems.push(("security", said.into()));
        }
        let logs_in = security.protocol != SecurityProtocol::Ssl;
        let complete =
            security.mechanism.is_some() && security.username.is_some() && security.password_file.is_some();
        if logs_in && !complete {
            problems.push(("security", "a login needs mechanism, username and password_file".into()));
        }
        if let Some(name) = security.mechanism.as_deref().filter(|name| !MECHANISMS.contains(name)) {
            let said = format!("mechanism {name:?} is not known; allowed: {}", MECHANISMS.join(", "));
            problems.push(("security", said));
        }
        if security.certificate_file.is_some() != security.key_file.is_some() {
            problems.push(("security", "certificate_file and key_file go together".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of settings that are given as JSON beside the brokers.
    fn problems(more: serde_json::Value) -> Result<KafkaConfig, String> {
        let mut given = serde_json::json!({"brokers": "localhost:9092"});
        given.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let config: KafkaConfig = serde_json::from_value(given).map_err(|error| error.to_string())?;
        config.validate().map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_is_given_is_taken_and_the_rest_is_the_default() {
        let plain = problems(serde_json::json!({})).unwrap();
        assert_eq!(plain, KafkaConfig::new("localhost:9092", "{tree}"));
        let given = serde_json::json!({
            "topic": "site.{tree}", "value": "json", "queue_bytes": "1MiB", "stall_after": "5s",
            "librdkafka": {"linger.ms": 20, "socket.keepalive.enable": true},
        });
        let config = problems(given).unwrap();
        assert_eq!((config.value, config.queue_bytes), (ValueFormat::Json, ByteSize::new(1 << 20)));
        assert_eq!(config.librdkafka["linger.ms"], "20");
        assert_eq!(config.client().unwrap().get("linger.ms"), Some("20"));
        assert_eq!(config.client().unwrap().get("message.timeout.ms"), Some("0"));
    }

    #[test]
    fn every_rule_names_its_key_and_what_is_allowed() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        for (given, said) in [
            (r#"{"brokers": " , "}"#, "brokers: name at least one"),
            (r#"{"topic": "a b"}"#, "topic: "),
            (r#"{"delivery": "exactly_once"}"#, "use at_least_once"),
            (r#"{"partitions": 0}"#, "allowed: 1 to 10000"),
            (r#"{"replication": 0}"#, "allowed: 1 to 100"),
            (r#"{"queue_bytes": "1KiB"}"#, "allowed: 64KiB to 1GiB"),
            (r#"{"stall_after": "1ms"}"#, "allowed: 1s to 1h"),
            (r#"{"partition_check": "1ms"}"#, "allowed: 100ms to 1h"),
            (r#"{"unknown": 1}"#, "unknown field `unknown`"),
            (r#"{"librdkafka": {"no.such.setting": 1}}"#, "no.such.setting"),
            (r#"{"librdkafka": {"linger.ms": "soon"}}"#, "linger.ms"),
        ] {
            let problem = problems(json(given)).unwrap_err();
            assert!(problem.contains(said), "{given}: {problem}");
        }
    }

    #[test]
    fn what_the_promises_rest_on_cannot_be_overridden() {
        for key in
            ["enable.idempotence", "acks", "message.timeout.ms", "partitioner", "enable.gapless.guarantee"]
        {
            let problem = problems(serde_json::json!({"librdkafka": {key: "false"}})).unwrap_err();
            assert!(problem.contains(key) && problem.contains("set by the sink itself"), "{problem}");
        }
    }

    #[test]
    fn tls_and_login_are_complete_or_refused_and_need_a_full_build() {
        let security = |given: serde_json::Value| problems(serde_json::json!({"security": given}));
        let whole = serde_json::json!({
            "protocol": "sasl_ssl", "mechanism": "SCRAM-SHA-512", "username": "tidewire", "password_file": "/secret",
        });
        if cfg!(feature = "kafka-full") {
            security(whole).unwrap();
            let problem = security(serde_json::json!({"protocol": "sasl_ssl"})).unwrap_err();
            assert!(problem.contains("mechanism, username and password_file"), "{problem}");
            let problem = security(serde_json::json!({"protocol": "ssl", "key_file": "/key"})).unwrap_err();
            assert!(problem.contains("go together"), "{problem}");
        } else {
            let problem = security(whole).unwrap_err();
            assert!(problem.contains("feature `full`"), "{problem}");
            let problem = problems(serde_json::json!({"compression": "zstd"})).unwrap_err();
            assert!(problem.contains("lz4"), "{problem}");
        }
    }
}
