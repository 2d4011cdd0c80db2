//! The settings of librdkafka that a sink's promises rest on.

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use tidewire_core::error::{SinkError, SinkErrorKind};

use super::config::{KafkaConfig, SecurityProtocol};

/// What the sink sets itself, or has a setting of its own for.
pub(super) const OWNED: &[&str] = &[
    "acks",
    "allow.auto.create.topics",
    "bootstrap.servers",
    "compression.codec",
    "compression.type",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "message.send.max.retries",
    "message.timeout.ms",
    "metadata.broker.list",
    "partitioner",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "request.required.acks",
    "retries",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "transactional.id",
];

/// What a waiting message costs the client beside its bytes, roughly: its own record and four headers.
const BESIDE: u64 = 512;

/// The settings of a client that only asks and creates.
pub(super) fn plain(config: &KafkaConfig) -> Result<ClientConfig, SinkError> {
    let mut client = ClientConfig::new();
    client.set_log_level(RDKafkaLogLevel::Warning);
    client.set("bootstrap.servers", &config.brokers).set("client.id", "tidewire");
    secure(config, &mut client)?;
    Ok(client)
}

/// The settings of a producer: nothing is given up on, nothing is left out, nothing overtakes.
pub(super) fn producer(config: &KafkaConfig) -> Result<ClientConfig, SinkError> {
    let mut client = plain(config)?;
    let kbytes = config.queue_bytes.get() / 1_024;
    let messages = (config.queue_bytes.get() / BESIDE).max(1);
    // The broker says how large a message may be; the batch stays below what brokers take by default.
    client.set("message.max.bytes", "33554432").set("batch.size", "1000000");
    for (key, value) in &config.librdkafka {
        client.set(key, value);
    }
    client
        .set("acks", "all")
        .set("enable.idempotence", "true")
        // A batch that is refused stops the client: none behind it is sent before it, and a broker refuses those that
        // were on their way already, because a sequence number is missing.
        .set("enable.gapless.guarantee", "true")
        // Waits for ever: the pump is told of a stall, and a message is never dropped.
        .set("message.timeout.ms", "0")
        .set("allow.auto.create.topics", "false")
        .set("compression.type", config.compression.name())
        .set("queue.buffering.max.kbytes", kbytes.to_string())
        .set("queue.buffering.max.messages", messages.to_string());
    Ok(client)
}

fn secure(config: &KafkaConfig, client: &mut ClientConfig) -> Result<(), SinkError> {
    let Some(security) = &config.security else { return Ok(()) };
    let protocol = match security.protocol {
        SecurityProtocol::Ssl => "ssl",
        SecurityProtocol::SaslSsl => "sasl_ssl",
        SecurityProtocol::SaslPlaintext => "sasl_plaintext",
    };
    client.set("security.protocol", protocol);
    let files = [
        ("ssl.ca.location", &security.ca_file),
        ("ssl.certificate.location", &security.certificate_file),
        ("ssl.key.location", &security.key_file),
    ];
    for (key, file) in files {
        if let Some(file) = file {
            client.set(key, file.to_string_lossy());
        }
    }
    if let Some(mechanism) = &security.mechanism {
        client.set("sasl.mechanism", mechanism);
    }
    if let Some(username) = &security.username {
        client.set("sasl.username", username);
    }
    if let Some(file) = &security.password_file {
        #[expect(clippy::disallowed_methods, reason = "a secret of the machine, which no Disk knows")]
        let password = std::fs::read_to_string(file).map_err(|error| {
            let said = format!("the password file {} cannot be read; mend it or its rights", file.display());
            SinkError::new(SinkErrorKind::Config, said).with_source(error)
        })?;
        client.set("sasl.password", password.trim_end_matches(['\r', '\n']));
    }
    Ok(())
}

/// Whether librdkafka knows every setting and takes its value.
pub(super) fn check(config: &KafkaConfig, problems: &mut Vec<(&str, String)>) {
    let unread = KafkaConfig { security: None, ..config.clone() };
    let taken = producer(&unread).map_err(|error| error.to_string()).and_then(|client| {
        client.create_native_config().map(|_| ()).map_err(|error| match error {
            KafkaError::ClientConfig(_, said, key, _) => format!("{key:?}: {said}"),
            other => other.to_string(),
        })
    });
    if let Err(said) = taken {
        problems.push(("librdkafka", said));
    }
}
