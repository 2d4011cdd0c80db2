//! [`Completion`]: the one answer that a provider owes for what it was asked to do.

use super::fate::Fate;
use crate::error::{StorageError, StorageErrorKind};

type Answer = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// The answer to one [`append`](super::WalStorage::append) or [`reconcile`](super::WalStorage::reconcile): given once,
/// from any thread; dropped unused it means failed. It carries the [`Fate`] of what was asked, and never contradicts it.
pub struct Completion {
    answer: Option<Answer>,
    fate: Fate,
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion").field("fate", &self.fate).finish_non_exhaustive()
    }
}

impl Completion {
    /// Calls `answer` when the provider is done.
    pub fn new(answer: impl FnOnce(Result<(), StorageError>) + Send + 'static) -> Self {
        Self::with_fate(Fate::default(), answer)
    }

    /// The same with a fate that exists already: for a provider that wraps another one, and passes the answer on.
    pub fn with_fate(fate: Fate, answer: impl FnOnce(Result<(), StorageError>) + Send + 'static) -> Self {
        Self { answer: Some(Box::new(answer)), fate }
    }

    /// What becomes of it: for a provider that stops early when nobody waits any more.
    pub fn fate(&self) -> &Fate {
        &self.fate
    }

    /// Says that it is durable, before anybody can read it. True: it is, and `Ok` follows, whatever happens. False: it
    /// was given up on, and must stay invisible.
    #[must_use]
    pub fn land(&self) -> bool {
        self.fate.land()
    }

    /// Gives the answer.
    pub fn complete(mut self, result: Result<(), StorageError>) {
        self.give(result);
    }

    fn give(&mut self, result: Result<(), StorageError>) {
        let Some(answer) = self.answer.take() else { return };
        answer(match result {
            Ok(()) if self.fate.land() => Ok(()),
            Ok(()) => {
                let said = "it was done after it had been given up on";
                Err(StorageError::new(StorageErrorKind::Deadline, said))
            }
            Err(error) if self.fate.give_up() => Err(error),
            // What is durable does not become undone by what went wrong afterwards.
            Err(error) => {
                tracing::warn!(%error, "a log provider failed after the group was durable");
                Ok(())
            }
        });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let said = "the log provider dropped a write without an answer";
        self.give(Err(StorageError::new(StorageErrorKind::Io, said)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    type Told = Arc<Mutex<Vec<bool>>>;

    fn completion() -> (Completion, Told) {
        let told = Told::default();
        let tell = told.clone();
        (Completion::new(move |answer| tell.lock().push(answer.is_ok())), told)
    }

    #[test]
    fn f25_an_answer_never_contradicts_what_became_of_the_group() {
        let (late, told) = completion();
        assert!(late.fate().give_up());
        late.complete(Ok(()));
        assert_eq!(*told.lock(), [false], "it was given up on before");
        let (landed, told) = completion();
        assert!(landed.land());
        landed.complete(Err(StorageError::new(StorageErrorKind::Io, "afterwards")));
        assert_eq!(*told.lock(), [true], "it was durable before");
        let (failed, told) = completion();
        let fate = failed.fate().clone();
        failed.complete(Err(StorageError::new(StorageErrorKind::Io, "failed")));
        assert!(!fate.land(), "a late landing finds the door closed");
        assert_eq!(*told.lock(), [false]);
    }

    #[test]
    fn a_completion_that_is_dropped_says_that_it_failed_once() {
        let (dropped, told) = completion();
        drop(dropped);
        let (panicked, of_panic) = completion();
        assert!(panicked.land());
        drop(panicked);
        assert_eq!((&told.lock()[..], &of_panic.lock()[..]), (&[false][..], &[true][..]));
    }
}
