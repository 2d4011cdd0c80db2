//! [`Connections`]: the TCP connections that this cluster has dialled, each shared by several links to the same url.
//!
//! HTTP/2 gives the streams of a connection turns of one frame each, and each has a window of its own; the window of the
//! connection holds all of them full. So trees share a connection fairly, and one that is not read holds back no other. A
//! connection that is full is joined by a second one; the last link that leaves closes it.
//!
//! A link joins a connection only once the far side has spoken on it: until then the far side takes it for a stranger and
//! reads one stream alone. Whoever comes meanwhile waits for that, or for a second, and dials by himself then.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant, timeout_at};
use tonic::transport::Channel;

use super::config::MAX_STREAMS;

/// How long a link waits for the first word on a connection that another one has dialled.
const FIRST_WORD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The far side has not spoken yet.
    Fresh,
    /// It has, and may be joined.
    Known,
    /// A link on it broke, or ended before it was known: nobody joins it any more.
    Left,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    seats: Arc<Semaphore>,
    state: Mutex<State>,
    changed: Notify,
}

impl Connection {
    fn turn(&self, from: Option<State>, to: State) {
        {
            let mut state = self.state.lock();
            if from.is_some_and(|from| *state != from) {
                return;
            }
            *state = to;
        }
        self.changed.notify_waiters();
    }

    fn seat(self: &Arc<Self>) -> Option<Seat> {
        let permit = self.seats.clone().try_acquire_owned().ok()?;
        Some(Seat { connection: self.clone(), _permit: permit })
    }

    /// Waits until it is not fresh any more.
    async fn settled(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if *self.state.lock() != State::Fresh {
                return;
            }
            changed.await;
        }
    }
}

/// A link's place on a connection.
pub(super) struct Seat {
    connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    /// The connection, to open a stream on it.
    pub(super) fn channel(&self) -> Channel {
        self.connection.channel.clone()
    }

    /// The far side has spoken.
    pub(super) fn heard(&self) {
        self.connection.turn(Some(State::Fresh), State::Known);
    }

    /// The link broke, and perhaps the connection.
    pub(super) fn broke(&self) {
        self.connection.turn(None, State::Left);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connection.turn(Some(State::Fresh), State::Left);
    }
}

/// What a link finds.
enum Found {
    Seat(Seat),
    Fresh(Arc<Connection>),
    Nothing,
}

/// The connections of one transport. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<BTreeMap<String, Vec<Weak<Connection>>>>>);

impl Connections {
    /// A place on a connection to a url: on one that is there, or on one that `dial` makes.
    pub(super) async fn seat(&self, url: &str, dial: impl FnOnce() -> Channel) -> Seat {
        let deadline = Instant::now() + FIRST_WORD;
        while let Found::Fresh(connection) = match self.find(url) {
            Found::Seat(seat) => return seat,
            found => found,
        } {
            if timeout_at(deadline, connection.settled()).await.is_err() {
                break;
            }
        }
        let connection = Arc::new(Connection {
            channel: dial(),
            seats: Arc::new(Semaphore::new(MAX_STREAMS as usize)),
            state: Mutex::new(State::Fresh),
            changed: Notify::new(),
        });
        self.0.lock().entry(url.to_owned()).or_default().push(Arc::downgrade(&connection));
        connection.seat().expect("a new connection has room")
    }

    fn find(&self, url: &str) -> Found {
        let mut all = self.0.lock();
        all.retain(|_, connections| {
            connections.retain(|connection| connection.strong_count() > 0);
            !connections.is_empty()
        });
        let open: Vec<_> = all.get(url).into_iter().flatten().filter_map(Weak::upgrade).collect();
        let is = |state| move |connection: &&Arc<Connection>| *connection.state.lock() == state;
        if let Some(seat) = open.iter().filter(is(State::Known)).find_map(Connection::seat) {
            return Found::Seat(seat);
        }
        open.iter().find(is(State::Fresh)).map_or(Found::Nothing, |fresh| Found::Fresh(fresh.clone()))
    }

    /// How many connections there are.
    pub(super) fn open(&self) -> usize {
        self.0.lock().values().flatten().filter(|connection| connection.strong_count() > 0).count()
    }
}
