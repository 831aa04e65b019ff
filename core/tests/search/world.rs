//! A pool and everything that its driver holds, what can happen to them, and the laws that hold afterwards.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::{Maintenance, PoolOptions, PoolSizes};
use cmap_core::pool::{
    Action as PoolAction, Answer, Cancellation, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle,
    Input, Output, Pool, PoolState, Reaction, ServiceId,
};
use cmap_core::time::Instant;

use super::canonical::canonical;

/// The bounds of a search, and the options of its pool.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) connections: u32,
    pub(super) waiters: usize,
    pub(super) max_connecting: u32,
    pub(super) min_pool_size: u32,
    /// Zero: none.
    pub(super) wait_queue_timeout: Duration,
    /// Zero: none.
    pub(super) max_idle: Duration,
    /// How much time passes at once; zero: none ever does.
    pub(super) pass: Duration,
    /// Whether maxPoolSize changes between one and `connections`.
    pub(super) resizes: bool,
    /// How long some check-outs may wait, by a deadline of their own; zero: there are none such.
    pub(super) patience: Duration,
    /// Whether the pool is behind a load balancer, before two services.
    pub(super) load_balanced: bool,
}

/// A state of the world.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pool: Pool<()>,
    now: Instant,
    waiting: Vec<CheckOutId>,
    pending: Vec<Handle>,
    checking: Vec<Handle>,
    available: Vec<Handle>,
    in_use: Vec<(CheckOutId, Handle)>,
    /// The law that the last call broke.
    pub(super) broken: Option<String>,
    key: String,
}

/// What happens. Connections and check-outs are named by their places, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    CheckOut,
    CheckOutInTime,
    Cancel(usize),
    CheckIn(usize, Condition),
    HangUp(usize),
    /// The peer of an available connection has hung up.
    HangUpIdle(usize),
    Hello(usize, u8),
    Establish(usize),
    EstablishFails(usize, Reaction),
    Check(usize, bool),
    Clear {
        service: Option<u8>,
        interrupts: bool,
    },
    Ready,
    Resize(u32),
    ReplaceConnections,
    Resume,
    Pass,
    Close,
}

impl Default for World {
    /// Nothing depends on time.
    fn default() -> Self {
        let none = Duration::ZERO;
        Self {
            connections: 2,
            waiters: 2,
            max_connecting: 2,
            min_pool_size: 0,
            wait_queue_timeout: none,
            max_idle: none,
            pass: none,
            resizes: false,
            patience: none,
            load_balanced: false,
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.broken == other.broken
    }
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        self.broken.hash(state);
    }
}

impl World {
    pub(super) fn begin(&self) -> Node {
        let mut options = PoolOptions::default();
        options.max_pool_size = Some(self.connections);
        options.min_pool_size = Some(self.min_pool_size);
        options.max_connecting = Some(self.max_connecting);
        options.wait_queue_timeout = Some(self.wait_queue_timeout).filter(|limit| !limit.is_zero());
        options.max_idle_time = Some(self.max_idle).filter(|limit| !limit.is_zero());
        // Without time nothing is ever idle for long.
        options.check_after_idle = Some(if self.pass.is_zero() { Duration::MAX } else { 3 * self.pass });
        options.maintenance = Some(if self.pass.is_zero() { Maintenance::Off } else { Maintenance::Every(self.pass) });
        options.backoff = Some(false);
        options.load_balanced = self.load_balanced;
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, Instant::ORIGIN).unwrap();
        pool.observe(false);
        let mut node = Node {
            pool,
            now: Instant::from_millis(1),
            waiting: Vec::new(),
            pending: Vec::new(),
            checking: Vec::new(),
            available: Vec::new(),
            in_use: Vec::new(),
            broken: None,
            key: String::new(),
        };
        node.drain().unwrap();
        node.key = canonical(&node.pool, node.now);
        node
    }

    /// All that can happen in a state.
    pub(super) fn possible(&self, node: &Node) -> Vec<Action> {
        let conditions = [Condition::Usable, Condition::Errored];
        let reactions = [Reaction::KeepPool, Reaction::ClearPool];
        let services: &[Option<u8>] = if self.load_balanced { &[Some(0), Some(1)] } else { &[None] };
        let mut actions = vec![Action::Ready];
        for &service in services {
            actions.extend([false, true].map(|interrupts| Action::Clear { service, interrupts }));
        }
        if node.waiting.len() < self.waiters {
            actions.push(Action::CheckOut);
            if !self.patience.is_zero() {
                actions.push(Action::CheckOutInTime);
            }
        }
        if !self.pass.is_zero() {
            actions.push(Action::Pass);
        }
        if self.resizes {
            actions.extend([Action::Resize(1), Action::Resize(self.connections)]);
        }
        actions.extend([Action::ReplaceConnections, Action::Resume, Action::Close]);
        actions.extend((0..node.waiting.len()).map(Action::Cancel));
        for place in 0..node.in_use.len() {
            actions.extend(conditions.map(|condition| Action::CheckIn(place, condition)));
            actions.push(Action::HangUp(place));
        }
        actions.extend((0..node.available.len()).map(Action::HangUpIdle));
        for (place, &connection) in node.pending.iter().enumerate() {
            if self.load_balanced && node.pool.service_of(connection).is_none() {
                actions.extend([0, 1].map(|service| Action::Hello(place, service)));
            } else {
                actions.push(Action::Establish(place));
            }
            actions.extend(reactions.map(|reaction| Action::EstablishFails(place, reaction)));
        }
        for place in 0..node.checking.len() {
            actions.extend([true, false].map(|alive| Action::Check(place, alive)));
        }
        actions
    }

    /// The state after something has happened.
    pub(super) fn next(&self, node: &Node, action: Action) -> Node {
        let mut next = node.clone();
        next.broken = next.act(self, action).and_then(|()| next.judge(self, node)).err();
        next.key = canonical(&next.pool, next.now);
        next
    }

    /// The faults stop: servers answer, callers give back what they have, and everybody has to be answered. Then the pool is closed,
    /// and nothing may be left.
    pub(super) fn calms_down(&self, node: &Node) -> Result<(), String> {
        let mut node = node.clone();
        for _ in 0..20 {
            if node.pool.state() == PoolState::Paused {
                node.act(self, Action::Ready)?;
            }
            while !node.pending.is_empty() {
                node.act(self, Action::Establish(0))?;
            }
            while !node.checking.is_empty() {
                node.act(self, Action::Check(0, true))?;
            }
            if !node.in_use.is_empty() {
                node.act(self, Action::CheckIn(0, Condition::Usable))?;
            }
        }
        law("nobody waits", node.waiting.is_empty() || node.pool.state() == PoolState::Closed)?;
        node.act(self, Action::Close)?;
        let counts = node.pool.counts();
        law("nothing is left", (counts.pending, counts.available, counts.in_use, counts.waiting) == (0, 0, 0, 0))
    }
}

impl Node {
    fn act(&mut self, world: &World, action: Action) -> Result<(), String> {
        match action {
            Action::CheckOut => self.check_out(CheckOutRequest::default()),
            Action::CheckOutInTime => {
                let mut request = CheckOutRequest::default();
                request.deadline = Some(self.now + world.patience);
                self.check_out(request)
            }
            Action::Cancel(place) => {
                let check_out = self.waiting.remove(place);
                let answer = self.pool.call(self.now, Input::CancelCheckOut(check_out), None);
                law("one that waits can be cancelled", answer == Answer::Cancellation(Cancellation::Cancelled))?;
                self.drain()
            }
            Action::CheckIn(place, condition) => {
                let (check_out, connection) = self.in_use.remove(place);
                self.available.push(connection);
                self.call(Input::CheckIn(check_out, connection, condition))
            }
            Action::HangUp(place) => self.call(Input::PeerClosed(self.in_use[place].1)),
            Action::HangUpIdle(place) => self.call(Input::PeerClosed(self.available[place])),
            Action::Hello(place, service) => self.call(Input::Hello(self.pending[place], service_id(service))),
            Action::Establish(place) => {
                let connection = self.pending.remove(place);
                if world.load_balanced && self.pool.service_of(connection).is_none() {
                    self.call(Input::Hello(connection, service_id(0)))?;
                }
                self.available.push(connection);
                self.call(Input::Established(connection))
            }
            Action::EstablishFails(place, reaction) => {
                let connection = self.pending.remove(place);
                let error = EstablishError::new(Phase::Connect, Fault::Network, "refused");
                self.call(Input::EstablishFailed(connection, error, reaction))
            }
            Action::Check(place, alive) => {
                let connection = self.checking.remove(place);
                self.available.push(connection);
                self.call(Input::Checked(connection, alive))
            }
            Action::Clear { service, interrupts } => {
                let cause = Cause::new("cleared");
                let mut clear = match service {
                    None => Clear::pool(cause),
                    Some(service) => Clear::service(service_id(service), cause),
                };
                clear.interrupt_in_use_connections = interrupts;
                self.call(Input::Clear(clear))
            }
            Action::Ready => self.call(Input::Ready),
            Action::Resize(size) => {
                let mut sizes = PoolSizes::default();
                sizes.max_pool_size = Some(size);
                self.call(Input::Resize(sizes.into()))
            }
            Action::ReplaceConnections => self.call(Input::ReplaceConnections(Duration::ZERO)),
            Action::Resume => self.call(Input::Resume),
            Action::Pass => self.pass(world.pass),
            Action::Close => self.call(Input::Close),
        }
    }

    fn check_out(&mut self, request: CheckOutRequest) -> Result<(), String> {
        // Its id is needed before its delivery is seen.
        let Answer::CheckOut(check_out, delivery) = self.pool.call(self.now, Input::CheckOut(request), None) else {
            return Err("a check-out begins".to_owned());
        };
        self.waiting.push(check_out);
        self.carry_out()?;
        delivery.map_or(Ok(()), |delivery| self.deliver(&delivery))?;
        self.drain()
    }

    fn call(&mut self, input: Input) -> Result<(), String> {
        match self.pool.call(self.now, input, Some(())) {
            Answer::Misuse(misuse, _) => return Err(format!("a call that makes sense is taken: {misuse}")),
            Answer::CheckedIn(Some(delivery)) => {
                self.carry_out()?;
                self.deliver(&delivery)?;
            }
            Answer::Done | _ => {}
        }
        self.drain()
    }

    fn pass(&mut self, by: Duration) -> Result<(), String> {
        let end = self.now + by;
        while let Some(timeout) = self.pool.poll_timeout().filter(|timeout| timeout.at <= end) {
            self.now = timeout.at;
            self.handle_timeout()?;
        }
        self.now = end;
        Ok(())
    }

    /// Carries out what the pool wants, and comes back when it asks for it.
    fn drain(&mut self) -> Result<(), String> {
        self.carry_out()?;
        if self.is_due() { self.handle_timeout() } else { Ok(()) }
    }

    fn handle_timeout(&mut self) -> Result<(), String> {
        self.pool.handle_timeout(self.now);
        self.carry_out()?;
        law("a timer does not spin", !self.is_due())
    }

    fn is_due(&self) -> bool {
        self.pool.poll_timeout().is_some_and(|timeout| timeout.at <= self.now)
    }

    fn deliver(&mut self, &Delivery { check_out, connection, .. }: &Delivery<()>) -> Result<(), String> {
        law("a check-out ends once", self.end(check_out))?;
        law("a stale connection is never delivered", !self.pool.is_stale(connection))?;
        // Of another user it would not be among the available ones.
        law("a connection has one user", self.take(connection))?;
        self.in_use.push((check_out, connection));
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), String> {
        while let Some(output) = self.pool.poll_output() {
            let Output::Action(action) = output else { continue };
            match action {
                PoolAction::Connect { connection } => self.pending.push(connection),
                PoolAction::Check { connection } => {
                    law("what is checked was available", self.take(connection))?;
                    self.checking.push(connection);
                }
                PoolAction::Deliver { check_out, connection, socket } => {
                    self.deliver(&Delivery { check_out, connection, socket })?;
                }
                PoolAction::Fail { check_out, .. } => law("a check-out ends once", self.end(check_out))?,
                PoolAction::Close { connection, .. } => {
                    law("a connection in use is not closed", !self.in_use.iter().any(|&(_, held)| held == connection))?;
                    self.checking.retain(|checking| *checking != connection);
                    self.take(connection);
                }
                PoolAction::Interrupt { connection } => self.pending.retain(|pending| *pending != connection),
                PoolAction::Refresh { .. } | PoolAction::WarmedUp { .. } => {
                    return Err("nothing is refreshed or warmed up here".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Whether a connection was available, which it is no longer.
    fn take(&mut self, connection: Handle) -> bool {
        let before = self.available.len();
        self.available.retain(|available| *available != connection);
        self.available.len() < before
    }

    fn end(&mut self, check_out: CheckOutId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != check_out);
        self.waiting.len() < before
    }

    /// What holds in every state, and after the state `before`.
    fn judge(&self, world: &World, before: &Node) -> Result<(), String> {
        self.pool.check_invariants().map_err(|broken| broken.to_string())?;
        let counts = self.pool.counts();
        let (waiting, checking) = (self.waiting.len(), self.checking.len());
        law("the pool counts who waits", counts.waiting as usize == waiting)?;
        law("the pool counts what is established", counts.pending as usize == self.pending.len())?;
        law("the pool counts what is in use", counts.in_use as usize == self.in_use.len())?;
        law("the pool counts what is available", counts.available as usize == self.available.len() + checking)?;
        let (total, total_before) = (counts.total(), before.pool.counts().total());
        let max = self.pool.options().max_pool_size.unwrap_or(world.connections);
        // Those pending and in use stay when the limit sinks, and do not become more.
        law("there are at most maxPoolSize connections", total <= max || total <= total_before)?;
        law("at most maxConnecting are established at a time", counts.pending <= world.max_connecting)?;
        let idle = self.available.len();
        law("what is too much is not kept available", total <= max || idle == 0)?;
        // One that was idle for long is checked first, one for each waiter.
        law("nobody waits while a connection is available", waiting <= checking || idle == 0)?;
        let has_room = self.pool.state() == PoolState::Ready && total < max && counts.pending < world.max_connecting;
        let lacks_one = waiting > self.pending.len() + checking;
        law("nobody waits while a connection could be created", !(has_room && lacks_one))?;
        law("a closed pool keeps nobody waiting", self.pool.state() != PoolState::Closed || waiting == 0)
    }
}

/// Fails unless the law holds.
fn law(law: &str, holds: bool) -> Result<(), String> {
    if holds { Ok(()) } else { Err(law.to_owned()) }
}

fn service_id(service: u8) -> ServiceId {
    ServiceId([service; 12])
}
