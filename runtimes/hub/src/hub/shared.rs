//! What all tasks of the hub share.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cmap_core::pool::ServiceId;
use cmap_core::server::MIN_WIRE_VERSION;
use cmap_core::time::Instant;
use cmap_core::wire::CompressorId;
use cmap_tokio::ReverseListener;
use tokio::sync::{Notify, watch};

use super::activity::Activity;
use super::audit::Audit;
use super::clients::{Clients, Ended};
use super::clock::Clock;
use super::descriptors::Reserve;
use super::error::StartError;
use super::gate::Gate;
use super::history::History;
use super::log_limit::LogLimit;
use super::packers::Packers;
use super::program::Program;
use super::purse::Purse;
use super::stage::Stage;
use super::upstream::Upstream;
use crate::config::{Config, Limits};
use crate::protocol::{Common, Doors, Ending, Facts, Full, Gauge, SessionId, Sessions, Surroundings};
use crate::users::{Rules, User, Users};

/// How many lines of the log each kind of clients can cause in a second.
const LINES: u32 = 10;

/// How long uses upstream may go on when the hub has ended.
const LAST_USES: Duration = Duration::from_secs(2);

/// The hub's state.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) upstream: Upstream,
    pub(super) gate: Arc<Gate>,
    pub(super) purse: Arc<Purse>,
    pub(super) activity: Arc<Activity>,
    pub(super) history: History,
    common: Mutex<Common>,
    pub(super) packers: Packers,
    pub(super) log_of_strangers: LogLimit,
    pub(super) log_of_users: LogLimit,
    pub(super) audit: Audit,
    users: RwLock<Arc<Users>>,
    settings: RwLock<Arc<Settings>>,
    /// Whether there is a status, since the start.
    has_status: bool,
    service: ServiceId,
    decoys: [u8; 32],
    clock: Clock,
    numbers: AtomicI64,
    stage: watch::Sender<Stage>,
    pub(super) clients: Clients,
    pub(super) program: Program,
    /// Told when an operator wants the hub to end.
    pub(super) asked_to_end: Notify,
    /// Whether a new process has taken the listeners over.
    pub(super) succeeded: watch::Sender<bool>,
    /// How many connections there are, and how many clean-ups are under way.
    open: watch::Sender<(usize, usize)>,
    /// Told when a session was killed.
    killed: watch::Sender<()>,
}

/// What a reload changes, besides users.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    /// How long a command may wait for a server, retries included.
    pub(super) patience: Duration,
    /// Whether the hub repeats what a server has failed to do.
    pub(super) retries: bool,
    /// Whether servers learn what clients say about themselves.
    pub(super) client_metadata: bool,
    /// How long clients have to finish when the hub ends.
    pub(super) drain: Duration,
    compressors: Vec<CompressorId>,
}

/// A connection that has been let in. Dropping it lets it out.
#[derive(Debug)]
pub(super) struct Entrance {
    shared: Arc<Shared>,
    pub(super) address: Arc<str>,
    /// Whether it may not run commands yet.
    is_stranger: bool,
    pub(super) user: Option<Arc<str>>,
    pub(super) number: i64,
    /// Says that it has to end, and why.
    pub(super) ended: Ended,
}

/// A clean-up under way.
#[derive(Debug)]
pub(super) struct CleanUp(Arc<Shared>);

/// A session that is being killed: commands of other connections in it wait. Dropping it lets them go on.
#[derive(Debug)]
pub(super) struct Kill {
    shared: Arc<Shared>,
    pub(super) session: SessionId,
}

impl Shared {
    pub(super) async fn new(mut config: Config) -> Result<Self, StartError> {
        let reserve = Reserve::of(&config);
        reserve.fit(&mut config.limits.doors)?.log();
        let upstream = Upstream::new(&mut config).await?;
        let (mut service, mut decoys) = ([0; 12], [0; 32]);
        getrandom::fill(&mut service).map_err(|_| StartError::NoRandomBits)?;
        getrandom::fill(&mut decoys).map_err(|_| StartError::NoRandomBits)?;
        let [a, b, c, d, ..] = service;
        let run = u32::from_be_bytes([a, b, c, d]);
        let settings = Settings::of(&config, config.limits);
        let limits = settings.limits;
        let users = match config.users {
            Some(users) => Users::new(users, decoys),
            None => Users::open(Rules::default()),
        };
        let clock = Clock::start();
        let gate = Gate::new(limits.queue, clock);
        gate.set_limits(limits.queue, users.shares());
        Ok(Self {
            upstream,
            gate: Arc::new(gate),
            purse: Arc::new(Purse::new(limits.memory, clock)),
            activity: Arc::new(Activity::new(config.status.is_some() && config.histograms)),
            history: History::new(run),
            common: Mutex::new(Common {
                sessions: Sessions::new(limits.sessions_per_user),
                doors: Doors::new(limits.doors),
            }),
            packers: Packers::default(),
            log_of_strangers: LogLimit::of(LINES),
            log_of_users: LogLimit::of(LINES),
            audit: Audit::new(),
            users: RwLock::new(Arc::new(users)),
            settings: RwLock::new(Arc::new(settings)),
            has_status: config.status.is_some(),
            service: ServiceId(service),
            decoys,
            clock,
            numbers: AtomicI64::new(0),
            stage: watch::Sender::new(Stage::Open),
            clients: Clients::default(),
            program: Program::default(),
            asked_to_end: Notify::new(),
            succeeded: watch::Sender::new(false),
            open: watch::Sender::new((0, 0)),
            killed: watch::Sender::new(()),
        })
    }

    /// Whether the hub goes on with its users, though a configuration has none: its listeners may be open to everybody.
    pub(super) fn keeps_users(&self, config: &Config) -> bool {
        config.users.is_none() && self.users().anonymous().is_none()
    }

    /// Takes over users, rules, limits and the like. `others` are identities that are not what they were. Returns how many connections were
    /// ended, because who has logged in on them could not do so now, or would be another one upstream.
    pub(super) fn take_over(&self, mut config: Config, others: &BTreeSet<String>) -> usize {
        let keeps_users = self.keeps_users(&config);
        let mut fates = BTreeMap::new();
        if keeps_users {
            tracing::warn!(target: "cmap::hub", "a hub with users goes on with them, and with their identities upstream, until it is started again");
        } else {
            let users = match config.users.take() {
                Some(users) => Users::new(users, self.decoys),
                None => Users::open(Rules::default()),
            };
            fates = fates_of(&self.users(), &users, others);
            *self.users.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(users);
        }
        let users = self.users();
        let mut limits = config.limits;
        // Of those that go on, too.
        let count = users.all().count();
        config.places.before(config.connections(), count).set(&mut limits.queue);
        limits.memory = config.memory(count);
        match Reserve::of(&config).fit(&mut limits.doors) {
            Ok(fitted) => fitted.log(),
            // It was lowered meanwhile: those that are there go on.
            Err(error) => tracing::warn!(target: "cmap::hub", "{error}"),
        }
        let settings = Arc::new(Settings::of(&config, limits));
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        self.activity.set_histograms(self.has_status && config.histograms);
        self.gate.set_limits(limits.queue, users.shares());
        self.purse.set_limits(limits.memory);
        {
            let mut state = self.lock();
            state.sessions.set_limit(limits.sessions_per_user);
            state.doors.set_limits(limits.doors);
        }
        let ended = [Ending::UserRemoved, Ending::UserChanged].map(|why| {
            self.clients.end(&why, |_, client| client.user.as_ref().and_then(|user| fates.get(user)) == Some(&why))
        });
        ended.into_iter().sum()
    }

    /// The hub's time.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// A moment of the hub's time, by tokio's clock.
    pub(super) fn moment(&self, at: Instant) -> tokio::time::Instant {
        self.clock.moment(at)
    }

    pub(super) fn uptime(&self) -> Duration {
        self.clock.uptime()
    }

    pub(super) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What becomes of a connection on which this user has logged in just now: a reload may have come meanwhile.
    pub(super) fn fate_of(&self, user: &User) -> Option<Ending> {
        // A new connection has nothing open upstream, so its identity there may be any.
        fate_of(user, &self.users(), &BTreeSet::new())
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls a line with what it decides by.
    pub(super) fn with<T>(&self, call: impl FnOnce(&mut Surroundings<'_>) -> T) -> T {
        let users = self.users();
        let facts = Facts {
            service: self.service,
            max_wire_version: self.upstream.max_wire_version().unwrap_or(MIN_WIRE_VERSION),
            has_users: users.anonymous().is_none(),
            begins: self.stage.borrow().begins(),
        };
        let mut nonce = || {
            let mut bytes = [0; 24];
            getrandom::fill(&mut bytes).ok().map(|()| bytes)
        };
        let (common, operations) = (&self.common, &*self.activity);
        let settings = self.settings();
        let compressors = &settings.compressors;
        call(&mut Surroundings { users: &users, common, operations, facts, compressors, nonce: &mut nonce })
    }

    /// A numbered write goes to a server that knows no numbers; whether it is the first time.
    pub(super) fn note_write(&self, session: &SessionId, number: i64) -> bool {
        self.lock().sessions.note_write(session, number)
    }

    /// That write was not done.
    pub(super) fn forget_write(&self, session: &SessionId, number: i64) {
        self.lock().sessions.forget_write(session, number);
    }

    /// A command that ran in a session has no client any more.
    pub(super) fn end_run(&self, session: &SessionId) {
        self.lock().sessions.end_run(self.now(), session);
    }

    /// Lets a connection in.
    pub(super) fn enter(self: &Arc<Self>, address: Arc<str>) -> Result<Entrance, Full> {
        self.lock().doors.enter(&address)?;
        self.open.send_modify(|open| open.0 += 1);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let ended = self.clients.add(number, &address);
        Ok(Entrance { shared: Arc::clone(self), address, is_stranger: true, user: None, number, ended })
    }

    pub(super) fn begin_clean_up(self: &Arc<Self>) -> CleanUp {
        self.open.send_modify(|open| open.1 += 1);
        CleanUp(Arc::clone(self))
    }

    /// Whether to kill a session in which a connection's command was cut off.
    pub(super) fn begin_kill(self: &Arc<Self>, session: SessionId, connection: i64) -> Option<Kill> {
        let is_its_own = self.lock().sessions.begin_kill(&session, connection);
        is_its_own.then(|| Kill { shared: Arc::clone(self), session })
    }

    /// Waits until nobody kills the session.
    pub(super) async fn wait_until_killed(&self, session: &SessionId) {
        let mut killed = self.killed.subscribe();
        while self.lock().sessions.is_ending(session) {
            // The sender is in `self`.
            let _ = killed.changed().await;
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.open.borrow().0
    }

    /// Looks at the number of connections.
    pub(super) fn look_at_connections<T>(&self, look: impl FnOnce(&mut Gauge) -> T) -> T {
        look(self.lock().doors.connections())
    }

    /// How many of them are strangers.
    pub(super) fn strangers(&self) -> usize {
        self.lock().doors.strangers()
    }

    pub(super) fn sessions(&self) -> usize {
        self.lock().sessions.len()
    }

    pub(super) fn connections_of_users(&self) -> Vec<(Arc<str>, usize)> {
        self.lock().doors.of_users().map(|(user, count)| (Arc::clone(user), count)).collect()
    }

    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    pub(super) async fn wait_until_empty(&self) {
        // The sender is in `self`.
        let _ = self.open.subscribe().wait_for(|open| open.0 == 0).await;
    }

    pub(super) async fn wait_until_clean(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == (0, 0)).await;
    }

    pub(super) async fn close_upstream(&self) {
        // The runtime that ends ends the client, too.
        let _ = self.upstream.client.close(LAST_USES).await;
        self.upstream.agents.iter().for_each(ReverseListener::close);
    }

    fn lock(&self) -> MutexGuard<'_, Common> {
        // Nothing under the lock panics.
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn of(config: &Config, limits: Limits) -> Self {
        let Config { patience, retries, client_metadata, drain, .. } = *config;
        Self { limits, patience, retries, client_metadata, drain, compressors: config.compressors.clone() }
    }
}

/// What becomes of connections on which somebody has logged in.
fn fates_of(before: &Users, after: &Users, others: &BTreeSet<String>) -> BTreeMap<Arc<str>, Ending> {
    before.all().filter_map(|user| Some((Arc::clone(&user.name), fate_of(user, after, others)?))).collect()
}

fn fate_of(user: &User, after: &Users, others: &BTreeSet<String>) -> Option<Ending> {
    let Some(now) = after.get(&user.name) else { return Some(Ending::UserRemoved) };
    let is_other = now.upstream.as_deref().is_some_and(|identity| others.contains(identity));
    (is_other || !now.is_proven_as(user)).then_some(Ending::UserChanged)
}

impl Entrance {
    /// Its client may run commands from now on, as `user` if it has logged in: both count until the connection ends. Returns whether it has
    /// logged in just now.
    pub(super) fn note_in(&mut self, user: Option<&Arc<str>>) -> bool {
        if self.is_stranger {
            self.is_stranger = false;
            self.shared.lock().doors.let_in(&self.address);
        }
        let Some(user) = user.filter(|_| self.user.is_none()) else { return false };
        self.user = Some(Arc::clone(user));
        self.shared.clients.name(self.number, user);
        true
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.shared.clients.remove(self.number);
        self.shared.lock().doors.leave(&self.address, self.is_stranger, self.user.as_ref());
        self.shared.open.send_modify(|open| open.0 -= 1);
    }
}

impl Drop for Kill {
    fn drop(&mut self) {
        self.shared.lock().sessions.end_kill(&self.session);
        self.shared.killed.send_replace(());
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| open.1 -= 1);
    }
}
