//! Where a command is on its way, and how long it has been at each place: a command of half a millisecond that has waited for five seconds is
//! not one that its server has taken five seconds for.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::address::ServerAddress;
use cmap_core::time::Instant;
use serde::{Serialize, Serializer};

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    /// It waits at the hub: for its turn, for a server that suits, or to be tried again.
    Queue,
    /// It waits for a connection upstream.
    Pool,
    /// It is at its server.
    Server,
    /// Its client takes the reply.
    Client,
}

/// How long a command was where, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Times {
    #[serde(serialize_with = "seconds")]
    pub(super) queue: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) pool: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) server: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) client: Duration,
}

/// A command's way, which its connection and the status look at.
#[derive(Clone, Debug)]
pub(super) struct Track(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    times: Times,
    /// The server that it was sent to last: the one to clean up at, if the command is cut off.
    server: Option<Arc<ServerAddress>>,
    is_cut_off: bool,
}

impl Track {
    /// A command has come.
    pub(super) fn new(now: Instant) -> Self {
        let (phase, times) = (Phase::Queue, Times::default());
        Self(Arc::new(Mutex::new(State { phase, since: now, times, server: None, is_cut_off: false })))
    }

    /// It goes on to another place.
    pub(super) fn enter(&self, now: Instant, phase: Phase) {
        self.lock().enter(now, phase);
    }

    /// It has a connection, and is sent to `server`.
    pub(super) fn send(&self, now: Instant, server: &Arc<ServerAddress>) {
        let mut state = self.lock();
        state.enter(now, Phase::Server);
        state.server = Some(Arc::clone(server));
    }

    /// The server that it was sent to last; `None` if it was not sent.
    pub(super) fn server(&self) -> Option<Arc<ServerAddress>> {
        self.lock().server.clone()
    }

    /// Where it is, and how long it was where until now.
    pub(super) fn times(&self, now: Instant) -> (Phase, Times) {
        let state = self.lock();
        let mut times = state.times;
        *times.of(state.phase) += now.saturating_since(state.since);
        (state.phase, times)
    }

    /// Nobody waits for it any more: it is not to be tried again.
    pub(super) fn cut_off(&self) {
        self.lock().is_cut_off = true;
    }

    /// Whether it waits for its server's reply.
    pub(super) fn is_at_server(&self) -> bool {
        self.lock().phase == Phase::Server
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.lock().is_cut_off
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, now: Instant, phase: Phase) {
        *self.times.of(self.phase) += now.saturating_since(self.since);
        (self.phase, self.since) = (phase, self.since.max(now));
    }
}

impl Times {
    /// All of it.
    pub(super) fn total(&self) -> Duration {
        self.queue + self.pool + self.server + self.client
    }

    /// Adds those of another command.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { queue, pool, server, client } = other;
        self.queue += *queue;
        self.pool += *pool;
        self.server += *server;
        self.client += *client;
    }

    fn of(&mut self, phase: Phase) -> &mut Duration {
        match phase {
            Phase::Queue => &mut self.queue,
            Phase::Pool => &mut self.pool,
            Phase::Server => &mut self.server,
            Phase::Client => &mut self.client,
        }
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn each_place_has_the_time_that_was_spent_there_attempts_added_up() {
        let (track, server) = (Track::new(at(0)), Arc::new("a:1".parse().unwrap()));
        track.enter(at(4_500), Phase::Pool);
        track.send(at(4_600), &server);
        track.enter(at(4_601), Phase::Queue);
        track.send(at(4_701), &server);
        track.enter(at(4_702), Phase::Client);

        let (phase, times) = track.times(at(4_712));

        let [queue, pool, server, client] = [4_600, 100, 2, 10].map(Duration::from_millis);
        assert_eq!((phase, times), (Phase::Client, Times { queue, pool, server, client }));
        assert_eq!(times.total(), Duration::from_millis(4_712));
    }
}
