//! Whose fault an error of Kafka is: the record's, the settings', the destination's, or nobody's.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tidewire_core::error::{SinkError, SinkErrorKind};

/// The class of an error code, for a message that was to be delivered and for everything else that was asked.
pub(super) fn kind_of(code: RDKafkaErrorCode) -> SinkErrorKind {
    use RDKafkaErrorCode as Code;
    match code {
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::MessageBatchTooLarge
        | Code::InvalidRecord
        | Code::InvalidTimestamp => SinkErrorKind::Record,
        Code::Authentication
        | Code::ClusterAuthorizationFailed
        | Code::IllegalSASLState
        | Code::InvalidConfig
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidRequiredAcks
        | Code::InvalidTopic
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedSASLMechanism => SinkErrorKind::Config,
        Code::AllBrokersDown
        | Code::BrokerTransportFailure
        | Code::Fatal
        | Code::GaplessGuarantee
        | Code::InvalidDifferentRecord
        | Code::MessageTimedOut
        | Code::NetworkException
        | Code::OperationTimedOut
        | Code::PurgeInflight
        | Code::PurgeQueue
        | Code::QueueFull
        | Code::RequestTimedOut
        | Code::Resolve => SinkErrorKind::Transient,
        _ => SinkErrorKind::Destination,
    }
}

/// What to do about an error of a class.
fn advice(kind: SinkErrorKind) -> &'static str {
    match kind {
        SinkErrorKind::Record => {
            "raise the limit of the topic, or park the record (on_poison = \"dead_letter\")"
        }
        SinkErrorKind::Config => "change the settings or the rights at the brokers, then restart the sink",
        SinkErrorKind::Destination => "look at the brokers; it is tried again",
        SinkErrorKind::Transient => "it is tried again",
    }
}

/// The error of a message that did not arrive at a topic.
pub(super) fn undelivered(topic: &str, code: RDKafkaErrorCode, bytes: usize) -> SinkError {
    let kind = kind_of(code);
    let said =
        format!("topic {topic} did not take a message of {bytes} bytes ({code:?}: {code}); {}", advice(kind));
    SinkError::new(kind, said)
}

/// The error of whatever else was asked of the brokers.
pub(super) fn refused(what: &str, error: &KafkaError) -> SinkError {
    let kind = error.rdkafka_error_code().map_or(SinkErrorKind::Config, kind_of);
    SinkError::new(kind, format!("{what} failed ({error}); {}", advice(kind)))
}

/// Which of several faults of one moment is told: the one that somebody can do something about.
pub(super) fn outranks(new: SinkErrorKind, old: SinkErrorKind) -> bool {
    let rank = |kind| match kind {
        SinkErrorKind::Transient => 0,
        SinkErrorKind::Destination => 1,
        SinkErrorKind::Record => 2,
        SinkErrorKind::Config => 3,
    };
    rank(new) > rank(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f34_only_what_the_record_itself_is_guilty_of_may_park_it() {
        use RDKafkaErrorCode as Code;
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord] {
            assert_eq!(kind_of(code), SinkErrorKind::Record, "{code:?}");
        }
        let innocent = [
            Code::AllBrokersDown,
            Code::NotEnoughReplicas,
            Code::UnknownTopicOrPartition,
            Code::KafkaStorageError,
            Code::PolicyViolation,
            Code::InvalidDifferentRecord,
            Code::TopicAuthorizationFailed,
            Code::Unknown,
        ];
        for code in innocent {
            assert_ne!(kind_of(code), SinkErrorKind::Record, "{code:?}");
        }
    }

    #[test]
    fn what_is_told_is_what_somebody_can_act_on() {
        use SinkErrorKind::{Config, Destination, Record, Transient};
        let ranked = [Transient, Destination, Record, Config];
        for (at, low) in ranked.iter().enumerate() {
            assert!(ranked[at + 1..].iter().all(|high| outranks(*high, *low) && !outranks(*low, *high)));
            assert!(!outranks(*low, *low), "the first one stays");
        }
    }
}
