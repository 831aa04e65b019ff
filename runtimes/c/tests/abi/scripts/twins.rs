//! One pool three times: behind the header, as the one server of a topology, and by itself.

use std::rc::Rc;

use cmap::{CheckOut, Connection};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, SYSTEM_OVERLOADED_ERROR};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, ApiMisuse, Delivery, Pool, Reaction};
use cmap_core::server::OperationError;
use cmap_core::time::Instant;
use cmap_core::topology::{self, Answer, CheckOut as Started, Criteria, Input, Topology, WarmUpId};

use super::expected;
use crate::pool::{AbiPool, Seen};

/// The three.
pub(crate) struct Twins {
    pub(crate) abi: Rc<AbiPool>,
    topology: Topology<u64>,
    /// Kept beside the others only while they are drained after each call: the order of what is left differs otherwise.
    pool: Option<Pool<u64>>,
    pub(crate) now: u64,
    /// The warm-ups whose end was not told yet.
    pub(crate) warm_ups: Vec<WarmUp>,
    last_warm_up: u64,
    /// What the pool by itself has said since the last drain, warm-ups left out.
    told: Vec<pool::Output<u64>>,
}

/// A warm-up, as each of the three calls it.
#[derive(Clone, Copy)]
pub(crate) struct WarmUp {
    pub(crate) number: u64,
    pub(crate) id: WarmUpId,
    of_pool: Option<pool::WarmUpId>,
}

/// What a call came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Came {
    Done,
    Delivered(Seen),
    Found(u32),
    Refused(i32),
}

impl Twins {
    pub(crate) fn new(json: &str, options: PoolOptions, alone: bool, now: u64) -> Self {
        let address = ServerAddress::tcp("db.example", 27017);
        let pool = Pool::new(address, options, Instant::from_nanos(now)).unwrap();
        Self {
            abi: Rc::new(AbiPool::new(json, now).unwrap()),
            topology: Topology::unmonitored(pool.clone()),
            pool: alone.then_some(pool),
            now,
            warm_ups: Vec::new(),
            last_warm_up: 0,
            told: Vec::new(),
        }
    }

    /// Makes a call of the topology and of the pool by itself, and says what the header has to say.
    pub(crate) fn call(&mut self, input: Input, socket: Option<u64>) -> Came {
        let now = Instant::from_nanos(self.now);
        let of_pool = self.of_pool(&input);
        let answer = self.topology.call(now, input, socket);
        if let (Some(pool), Some(of_pool)) = (&mut self.pool, of_pool) {
            let own = pool.call(now, of_pool, socket);
            assert_eq!(without_ids(&own), without_ids_of_topology(&answer), "the pool by itself");
        }
        if matches!(answer, Answer::Misuse(..) | Answer::LimitsRefused(_)) {
            // Of what it refuses, a topology lets its pool know the time of some calls and not of others.
            self.pool = None;
        }
        match answer {
            Answer::Done | Answer::WarmUp(_) => Came::Done,
            Answer::CheckOut(_, delivery) | Answer::CheckedIn(delivery) => {
                Came::Delivered(delivery.map_or(Seen::NOTHING, |delivery: Delivery<u64>| {
                    expected::delivered(delivery.check_out, delivery.connection, delivery.socket)
                }))
            }
            Answer::Cancellation(found) => Came::Found(found as u32 + 1),
            Answer::WarmUpCancelled(Some(_)) => Came::Found(1),
            Answer::WarmUpCancelled(None) => Came::Found(3),
            Answer::Misuse(misuse, _) => Came::Refused(number(misuse)),
            Answer::LimitsRefused(_) => Came::Refused(7),
            answer => unreachable!("{answer:?}"),
        }
    }

    /// A check-out, and its name behind the header.
    pub(crate) fn check_out(&mut self, request: pool::CheckOutRequest) -> (CheckOut, Came) {
        let now = Instant::from_nanos(self.now);
        let (begun, delivery) = self.topology.check_out(now, Criteria::WRITABLE, request);
        let Started::Started(begun) = begun else { unreachable!("no server has to be waited for") };
        if let Some(pool) = &mut self.pool {
            assert_eq!(pool.check_out(now, request), (begun, delivery.clone()), "the pool by itself");
        }
        let delivered = delivery.map(|it| expected::delivered(it.check_out, it.connection, it.socket));
        (CheckOut { opaque: begun.to_bits() }, Came::Delivered(delivered.unwrap_or(Seen::NOTHING)))
    }

    /// Begins a warm-up, and returns its number.
    pub(crate) fn warm_up(&mut self, connections: Option<u32>) -> u64 {
        let now = Instant::from_nanos(self.now);
        let id = self.topology.warm_up(now, Criteria::WRITABLE, connections);
        let of_pool = self.pool.as_mut().map(|pool| pool.warm_up(now, connections));
        self.last_warm_up += 1;
        self.warm_ups.push(WarmUp { number: self.last_warm_up, id, of_pool });
        self.last_warm_up
    }

    /// The next output of the topology, as the header has to tell it, which has to do so.
    pub(crate) fn poll(&mut self) -> Option<Seen> {
        let expected = loop {
            let Some(output) = self.topology.poll_output() else { break Seen::NOTHING };
            match output {
                topology::Output::Pool { output, .. } => {
                    self.told.push(output.clone());
                    // Looks into a copy: the topology lends its pool to read only.
                    let (_, server) = self.topology.servers().next().unwrap();
                    let seen = expected::seen(&output, &mut server.pool().clone());
                    if seen != Seen::NOTHING {
                        break seen;
                    }
                }
                topology::Output::WarmedUp { warm_up, result } => {
                    let place = self.warm_ups.iter().position(|own| own.id == warm_up).unwrap();
                    let number = self.warm_ups.remove(place).number;
                    let error = result.err();
                    let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
                    let reason = error.map_or(0, |error| cold(&error));
                    break Seen { kind: 8, number, reason, text, ..Seen::NOTHING };
                }
                topology::Output::Monitor { .. } => {}
                output => unreachable!("an unmonitored server has none: {output:?}"),
            }
        };
        assert_eq!(self.abi.poll(), expected);
        Some(expected).filter(|seen| *seen != Seen::NOTHING)
    }

    /// Compares all that can be asked. The topology is drained.
    pub(crate) fn compare(&mut self, connections: &[Connection]) {
        if let Some(pool) = &mut self.pool {
            let own: Vec<_> = core::iter::from_fn(|| pool.poll_output()).filter(is_not_warmed_up).collect();
            assert_eq!(own, self.told, "the pool by itself");
            // What is due is due now, however long it has been.
            let due = |at: Instant| at.max(Instant::from_nanos(self.now));
            let [own, others] =
                [pool.poll_timeout().map(|it| due(it.at)), self.topology.poll_timeout().map(|it| due(it.at))];
            assert_eq!(own, others);
        }
        self.told.clear();
        let (_, server) = self.topology.servers().next().unwrap();
        let (pool, timeout) = (server.pool(), server.pool().poll_timeout());
        let never = |at: Option<Instant>| at.map_or(u64::MAX, Instant::as_nanos);
        let (at, reason) = self.abi.poll_timeout();
        assert_eq!(at, never(timeout.map(|timeout| timeout.at)));
        assert_eq!(reason, timeout.map_or(0, |timeout| timeout.reason as u32 + 1));
        assert_eq!(self.abi.next_check_out_timeout(), never(pool.next_check_out_timeout()));
        for &connection in connections {
            let handle = cmap_core::pool::Handle::from_bits(connection.opaque).unwrap();
            assert_eq!(self.abi.is_stale(connection), pool.is_stale(handle));
        }
        let (statistics, holders) = (self.abi.statistics(self.now), self.abi.holders());
        let counts = pool.counts();
        assert_eq!(statistics["counts"]["inUse"], counts.in_use);
        assert_eq!(statistics["counts"]["pending"], counts.pending);
        assert_eq!(statistics["created"], pool.stats().created);
        assert_eq!(statistics["generation"], pool.generation().get());
        assert_eq!(holders["inUse"].as_array().unwrap().len(), counts.in_use as usize);
        assert_eq!(holders["waiting"].as_array().unwrap().len(), counts.waiting as usize);
    }

    /// Compares the state behind the header with that of the topology.
    pub(crate) fn compare_states(&self) {
        assert_eq!(self.abi.snapshot(), serde_json::to_value(self.topology.snapshot()).unwrap());
    }

    /// The call of a pool by itself; `None` if it has none, or where it is made otherwise.
    fn of_pool(&self, input: &Input) -> Option<pool::Input> {
        let pool = self.pool.as_ref()?;
        Some(match input.clone() {
            Input::CheckIn(check_out, connection, condition) => pool::Input::CheckIn(check_out, connection, condition),
            Input::CancelCheckOut(Started::Started(check_out)) => pool::Input::CancelCheckOut(check_out),
            Input::SetPurpose(check_out, connection, purpose) => {
                pool::Input::SetPurpose(check_out, connection, purpose)
            }
            Input::Ready => pool::Input::Ready,
            Input::Clear(clear) => pool::Input::Clear(clear),
            Input::Close => pool::Input::Close,
            Input::ResetAfterFork => pool::Input::ResetAfterFork,
            Input::Hello(connection, service, _) => pool::Input::Hello(connection, service?),
            Input::Established(connection) => pool::Input::Established(connection),
            Input::EstablishFailed(connection, error) => {
                let reaction = reaction(pool, connection, &error);
                pool::Input::EstablishFailed(connection, error, reaction)
            }
            Input::Checked(connection, is_alive) => pool::Input::Checked(connection, is_alive),
            Input::Refreshed(connection) => pool::Input::Refreshed(connection),
            Input::RefreshFailed(connection, _) => pool::Input::RefreshFailed(connection),
            Input::PeerClosed(connection) => pool::Input::PeerClosed(connection),
            Input::Resize(limits) => pool::Input::Resize(limits),
            Input::ReplaceConnections(over) => pool::Input::ReplaceConnections(over),
            Input::EndAffinity(key) => pool::Input::EndAffinity(key),
            Input::Resume => pool::Input::Resume,
            Input::RenewCredential(_) => pool::Input::RenewCredential,
            Input::CancelWarmUp(id) => {
                let known = self.warm_ups.iter().find(|warm_up| warm_up.id == id)?;
                pool::Input::CancelWarmUp(known.of_pool?)
            }
            Input::Timeout => pool::Input::Timeout,
            _ => return None,
        })
    }

    /// What is no call of [`Pool::call`].
    pub(crate) fn observe(&mut self, on: bool) {
        self.topology.observe(on);
        self.pool.iter_mut().for_each(|pool| pool.observe(on));
    }

    pub(crate) fn record_durations(&mut self, on: bool) {
        self.topology.record_durations(on);
        self.pool.iter_mut().for_each(|pool| pool.record_durations(on));
    }

    /// A ping that was lost clears the pool, where it is refreshed; the pool by itself has to be told.
    pub(crate) fn clears_for(&mut self, connection: pool::Handle, error: &OperationError) {
        let now = Instant::from_nanos(self.now);
        if let Some(pool) = &mut self.pool
            && error.fault == cmap_core::connection::Fault::Network
            && !error.is_overload
            && !pool.is_stale(connection)
            && is_refreshing(pool, connection)
        {
            let service_id = pool.service_of(connection);
            let mut clear = pool::Clear::pool(error.cause.clone());
            clear.service_id = service_id;
            if service_id.is_some() == pool.options().load_balanced {
                pool.clear(now, clear).unwrap();
            }
        }
    }

    /// The text of what was refused last.
    pub(crate) fn misuse_text(&self) -> String {
        self.abi.problem()
    }
}

fn is_refreshing(pool: &Pool<u64>, connection: pool::Handle) -> bool {
    let of = |kept: pool::Kept| kept.connection == connection && kept.state == pool::ConnectionState::Refreshing;
    pool.connections().any(of)
}

fn is_not_warmed_up(output: &pool::Output<u64>) -> bool {
    !matches!(output, pool::Output::Action(pool::Action::WarmedUp { .. }))
}

/// By the table of SDAM, as `core/src/server/reaction.rs` has it.
fn reaction(pool: &Pool<u64>, connection: pool::Handle, error: &EstablishError) -> Reaction {
    let keeps = error.has_label(SYSTEM_OVERLOADED_ERROR)
        || pool.is_stale(connection)
        || (pool.options().load_balanced && pool.service_of(connection).is_none());
    if keeps { Reaction::KeepPool } else { Reaction::ClearPool }
}

/// An answer of the pool, for a comparison with one of the topology.
fn without_ids(answer: &pool::Answer<u64>) -> String {
    match answer {
        pool::Answer::WarmUpCancelled(ended) => format!("WarmUpCancelled {}", ended.is_some()),
        answer => format!("{answer:?}"),
    }
}

fn without_ids_of_topology(answer: &Answer<u64>) -> String {
    match answer {
        Answer::WarmUpCancelled(ended) => format!("WarmUpCancelled {}", ended.is_some()),
        answer => format!("{answer:?}"),
    }
}

fn cold(error: &topology::WarmUpError) -> u32 {
    let error = match error {
        topology::WarmUpError::Pool(error) => error,
        topology::WarmUpError::Selection(error) if error.kind == topology::SelectionErrorKind::Closed => return 1,
        _ => return 2,
    };
    match &error.kind {
        pool::WarmUpErrorKind::PoolClosed => 1,
        pool::WarmUpErrorKind::PoolCleared { .. } => 2,
        pool::WarmUpErrorKind::Establish(_) => 3,
        pool::WarmUpErrorKind::BeyondMaxPoolSize { .. } => 4,
        kind => unreachable!("{kind:?}"),
    }
}

fn number(misuse: ApiMisuse) -> i32 {
    match misuse {
        ApiMisuse::ForeignConnection => 101,
        ApiMisuse::NotInUse => 102,
        ApiMisuse::NotPending => 103,
        ApiMisuse::NotChecking => 104,
        ApiMisuse::NotRefreshing => 105,
        ApiMisuse::ClearWithoutService => 106,
        ApiMisuse::ClearWithService => 107,
        ApiMisuse::UnexpectedService => 108,
        ApiMisuse::ServiceUnknown => 109,
        ApiMisuse::OtherUse => 110,
        misuse => unreachable!("{misuse:?}"),
    }
}
