//! [`Progress`]: what the polling thread knows and the sink waits for. The one place that both touch.
//!
//! librdkafka calls back on the polling thread for every message. A message is a number and a bit, and a mutex that
//! only the sink's rare looks compete for; the sink is woken when the number that it awaits has arrived, not before.

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::ProducerContext;
use tidewire_core::error::{SinkError, SinkErrorKind};
use tokio::sync::Notify;

use super::delivered::Delivered;
use super::faults;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Every message below this number has arrived.
    pub(super) prefix: u64,
    /// How many have arrived.
    pub(super) total: u64,
}

/// When to wake the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// At a fault only.
    Nothing,
    /// Every message below this number has arrived.
    Prefix(u64),
    /// This many have arrived, whichever.
    Total(u64),
}

impl Awaited {
    fn reached(self, delivered: &Delivered) -> bool {
        match self {
            Self::Nothing => false,
            Self::Prefix(number) => delivered.prefix() >= number,
            Self::Total(count) => delivered.total() >= count,
        }
    }
}

struct State {
    delivered: Delivered,
    awaited: Awaited,
    /// Found in the round of polling that goes on; told at its end, when the guilty one of a batch is known.
    found: Option<SinkError>,
    fault: Option<SinkError>,
    /// The last thing that the client said about its connections.
    brokers: String,
    partitions: u32,
}

/// Shared by the sink, the client's callbacks and the polling thread.
pub(super) struct Progress {
    state: Mutex<State>,
    wake: Notify,
}

impl Progress {
    pub(super) fn new() -> Self {
        let state = State {
            delivered: Delivered::default(),
            awaited: Awaited::Nothing,
            found: None,
            fault: None,
            brokers: "no word from the brokers yet".to_owned(),
            partitions: 0,
        };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    /// How far it is, and the fault if there is one.
    pub(super) fn look(&self) -> Result<Arrived, SinkError> {
        let state = self.state.lock();
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(Arrived { prefix: state.delivered.prefix(), total: state.delivered.total() }),
        }
    }

    /// Waits for a wake-up that is due, or was due since the last wait. Cancel-safe; there is one who waits.
    pub(super) async fn wait(&self, awaited: Awaited) {
        {
            let mut state = self.state.lock();
            if awaited.reached(&state.delivered) || state.fault.is_some() {
                return;
            }
            state.awaited = awaited;
        }
        self.wake.notified().await;
    }

    /// What the client last said about its connections.
    pub(super) fn brokers(&self) -> String {
        self.state.lock().brokers.clone()
    }

    /// The number of partitions that was seen last.
    pub(super) fn partitions(&self) -> u32 {
        self.state.lock().partitions
    }

    /// Takes over how many partitions the topic has.
    pub(super) fn see_partitions(&self, partitions: u32) {
        self.state.lock().partitions = partitions;
    }

    /// A round of polling is over: tells what was found in it.
    pub(super) fn end_round(&self) {
        let mut state = self.state.lock();
        if let Some(found) = state.found.take()
            && state.fault.is_none()
        {
            state.fault = Some(found);
            drop(state);
            self.wake.notify_one();
        }
    }

    fn arrived(&self, number: u64) {
        let mut state = self.state.lock();
        state.delivered.mark(number);
        if state.awaited.reached(&state.delivered) {
            state.awaited = Awaited::Nothing;
            drop(state);
            self.wake.notify_one();
        }
    }

    fn find(&self, fault: SinkError) {
        let mut state = self.state.lock();
        if state.found.as_ref().is_none_or(|old| faults::outranks(fault.kind(), old.kind())) {
            state.found = Some(fault);
        }
    }
}

/// What librdkafka calls back.
pub(super) struct Callbacks(pub(super) std::sync::Arc<Progress>);

impl ClientContext for Callbacks {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client");
        self.0.state.lock().brokers = format!("{error}: {reason}");
        if let Some(code) = error.rdkafka_error_code()
            && matches!(code, RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed)
        {
            let said =
                format!("the brokers refuse the login ({reason}); mend `security`, then restart the sink");
            self.0.find(SinkError::new(SinkErrorKind::Config, said));
        }
    }
}

impl ProducerContext for Callbacks {
    /// The number of the message within its run: no box, no channel.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        match result {
            Ok(_) => self.0.arrived(number as u64),
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
                let bytes = message.key_len() + message.payload_len();
                self.0.find(faults::undelivered(message.topic(), code, bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_sink_is_woken_when_what_it_awaits_has_arrived_and_not_before() {
        let progress = Arc::new(Progress::new());
        let mut waiting = Box::pin(progress.wait(Awaited::Prefix(2)));
        assert!(waiting.as_mut().now_or_never().is_none());
        progress.arrived(1);
        assert!(waiting.as_mut().now_or_never().is_none());
        progress.arrived(0);
        assert!(waiting.as_mut().now_or_never().is_some());
        assert!(progress.wait(Awaited::Total(2)).now_or_never().is_some(), "it has arrived already");
        assert_eq!(progress.look().unwrap(), Arrived { prefix: 2, total: 2 });
    }

    #[tokio::test]
    async fn f35_the_guilty_one_of_a_batch_is_told_and_not_who_fell_with_it() {
        let progress = Progress::new();
        progress.find(faults::undelivered("t", RDKafkaErrorCode::InvalidDifferentRecord, 5));
        progress.find(faults::undelivered("t", RDKafkaErrorCode::InvalidRecord, 5));
        progress.find(faults::undelivered("t", RDKafkaErrorCode::InvalidDifferentRecord, 5));
        assert!(progress.look().is_ok(), "the round goes on");
        progress.end_round();
        progress.find(faults::undelivered("t", RDKafkaErrorCode::Authentication, 5));
        progress.end_round();
        assert_eq!(progress.look().unwrap_err().kind(), SinkErrorKind::Record, "the first round's stays");
        assert!(progress.wait(Awaited::Nothing).now_or_never().is_some());
    }
}
