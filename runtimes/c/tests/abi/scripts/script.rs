//! One script: options and calls that choices decide.

use std::rc::Rc;
use std::time::Duration;

use cmap::*;
use cmap_core::connection::{EstablishError, Fault, Phase, SYSTEM_OVERLOADED_ERROR};
use cmap_core::options::{Affinity, Maintenance, PoolLimits, PoolOptions, PoolSizes, QueueDepth};
use cmap_core::pool::{AffinityKey, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Handle, Purpose, ServiceId};
use cmap_core::server::{OperationError, ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut as Started, Input};

use super::choices::Choices;
use super::twins::{Came, Twins};
use crate::pool::{Code, Seen};

const MILLISECOND: u64 = 1_000_000;

pub(crate) struct Script<'a> {
    choices: Choices<'a>,
    twins: Twins,
    /// Whether outputs are sometimes left.
    leaves_outputs: bool,
    is_load_balanced: bool,
    sockets: u64,
    pending: Vec<Connection>,
    checking: Vec<Connection>,
    refreshing: Vec<Connection>,
    in_use: Vec<(CheckOut, Connection)>,
    waiting: Vec<CheckOut>,
    /// All that were ever named, with one of another pool.
    connections: Vec<Connection>,
    check_outs: Vec<CheckOut>,
    /// How often each action was asked for; in place 9 how often a call was refused.
    reached: [u64; 16],
}

impl<'a> Script<'a> {
    pub(crate) fn new(mut choices: Choices<'a>) -> Self {
        let (json, options) = options(&mut choices);
        let leaves_outputs = choices.up_to(1) == 0;
        let is_load_balanced = options.load_balanced;
        let twins = Twins::new(&json, options, !leaves_outputs, choices.up_to(3) * MILLISECOND);
        let stranger = [3, 0, 0x6861_6e64_0000_0001];
        assert!(Handle::from_bits(stranger).is_some());
        Self {
            choices,
            twins,
            leaves_outputs,
            is_load_balanced,
            sockets: 0,
            pending: Vec::new(),
            checking: Vec::new(),
            refreshing: Vec::new(),
            in_use: Vec::new(),
            waiting: Vec::new(),
            connections: vec![Connection { opaque: stranger }],
            check_outs: vec![CheckOut { opaque: [1, 0, 0x6f75_7400_0000_0001] }],
            reached: [0; 16],
        }
    }

    /// Carries it out, and says how often each action was asked for.
    pub(crate) fn run(mut self) -> [u64; 16] {
        if self.choices.up_to(7) > 0 {
            let ready = self.twins.abi.ready(self.twins.now);
            self.same(Input::Ready, None, ready.map(|()| Came::Done));
        }
        let mut calls = 0;
        while self.choices.next_call() {
            self.pass_time();
            self.make_a_call();
            if !self.leaves_outputs || self.choices.up_to(3) > 0 {
                self.drain();
            }
            calls += 1;
            if calls % 16 == 0 {
                self.twins.compare_states();
            }
        }
        self.drain();
        self.twins.compare_states();
        self.reached
    }

    fn pass_time(&mut self) {
        let (at, _) = self.twins.abi.poll_timeout();
        self.twins.now = match self.choices.up_to(9) {
            0..=4 => self.twins.now,
            5 | 6 => self.twins.now + self.choices.up_to(20 * MILLISECOND),
            7 if at < u64::MAX => at.max(self.twins.now),
            8 => self.twins.now + self.choices.up_to(3000 * MILLISECOND),
            // A clock that goes back is one that stands still.
            _ => self.twins.now.saturating_sub(self.choices.up_to(MILLISECOND)),
        };
    }

    fn make_a_call(&mut self) {
        let (abi, now) = (Rc::clone(&self.twins.abi), self.twins.now);
        match self.choices.up_to(99) {
            0..=24 => self.check_out(),
            25..=44 => self.check_in(),
            45..=59 => self.establish(),
            60..=63 => {
                let check_out = self.a_check_out();
                let cancelled = abi.cancel(now, check_out).map(Came::Found);
                self.waiting.retain(|&waiting| waiting != check_out);
                self.same(Input::CancelCheckOut(Started::Started(id(check_out))), None, cancelled);
            }
            64 | 65 => {
                let (check_out, connection) = self.a_use();
                let (number, purpose) =
                    self.one_of([(1, Purpose::Other), (2, Purpose::Cursor), (3, Purpose::Transaction)]);
                let set = abi.set_purpose(check_out, connection, number).map(|()| Came::Done);
                self.same(Input::SetPurpose(id(check_out), handle(connection), purpose), None, set);
            }
            66..=68 => self.same(Input::Ready, None, abi.ready(now).map(|()| Came::Done)),
            69..=71 => self.clear(),
            72 if self.choices.up_to(3) == 0 => self.same(Input::Close, None, abi.close(now).map(|()| Came::Done)),
            73 if self.choices.up_to(3) == 0 => {
                self.same(Input::ResetAfterFork, None, abi.reset_after_fork(now).map(|()| Came::Done));
                self.pending.clear();
            }
            74..=77 => {
                let (connection, is_alive) = (self.take(|script| &mut script.checking), self.choices.up_to(3) > 0);
                let checked = abi.checked(now, connection, is_alive).map(|()| Came::Done);
                self.same(Input::Checked(handle(connection), is_alive), None, checked);
            }
            78..=80 => self.refresh(),
            81 => {
                let connection = self.a_connection();
                let closed = abi.peer_closed(now, connection).map(|()| Came::Done);
                self.same(Input::PeerClosed(handle(connection)), None, closed);
            }
            82 | 83 => self.resize(),
            84 => {
                let over = self.choices.up_to(100 * MILLISECOND);
                let retired = abi.replace_connections(now, over).map(|()| Came::Done);
                self.same(Input::ReplaceConnections(Duration::from_nanos(over)), None, retired);
            }
            85 => {
                let key = self.choices.up_to(3);
                let ended = abi.end_affinity(now, key).map(|()| Came::Done);
                self.same(Input::EndAffinity(AffinityKey(key)), None, ended);
            }
            86 => self.same(Input::Resume, None, abi.resume(now).map(|()| Came::Done)),
            87 => self.same(Input::RenewCredential(None), None, abi.renew_credential(now).map(|()| Came::Done)),
            88 => {
                let connections = Some(self.choices.up_to(6) as u32).filter(|&connections| connections > 0);
                assert_eq!(abi.warm_up(now, connections), self.twins.warm_up(connections));
            }
            89 => {
                let Some(warm_up) = self.twins.warm_ups.last().copied() else { return };
                // A pool by itself looks at the time when a warm-up is given up, and one of a topology does not.
                self.same(Input::Timeout, None, abi.handle_timeout(now).map(|()| Came::Done));
                let found = abi.cancel_warm_up(now, warm_up.number);
                self.same(Input::CancelWarmUp(warm_up.id), None, Ok(Came::Found(found)));
                if found == CMAP_CANCELLED {
                    self.twins.warm_ups.pop();
                }
            }
            90 => {
                let on = self.choices.up_to(3) > 0;
                abi.observe(on).unwrap();
                self.twins.observe(on);
            }
            91 => {
                let on = self.choices.up_to(1) == 0;
                abi.record_durations(on).unwrap();
                self.twins.record_durations(on);
            }
            _ => self.same(Input::Timeout, None, abi.handle_timeout(now).map(|()| Came::Done)),
        }
    }

    fn check_out(&mut self) {
        let now = self.twins.now;
        let deadline = (self.choices.up_to(3) == 0).then(|| now + self.choices.up_to(50 * MILLISECOND));
        let key = (self.choices.up_to(2) == 0).then(|| self.choices.up_to(3));
        let (check_out, delivery) = self.twins.abi.check_out(now, deadline, key);
        let mut request = CheckOutRequest::default();
        request.deadline = deadline.map(Instant::from_nanos);
        request.affinity = key.map(AffinityKey);
        let expected = self.twins.check_out(request);
        assert_eq!((check_out, Came::Delivered(delivery.clone())), expected);
        let index = usize::try_from(cmap_check_out_index_of(check_out)).unwrap();
        assert_eq!(index, id(check_out).index());
        self.check_outs.push(check_out);
        self.waiting.push(check_out);
        self.take_note(&delivery);
    }

    fn check_in(&mut self) {
        let (check_out, connection) = self.a_use();
        self.sockets += 1;
        let socket = self.sockets;
        let (number, condition) = self.one_of([
            (1, Condition::Usable),
            (1, Condition::Usable),
            (1, Condition::Usable),
            (2, Condition::Errored),
        ]);
        let checked_in = self.twins.abi.check_in(self.twins.now, check_out, connection, socket, number);
        if let Ok(delivery) = &checked_in {
            self.in_use.retain(|held| *held != (check_out, connection));
            let delivery = delivery.clone();
            self.take_note(&delivery);
        }
        let input = Input::CheckIn(id(check_out), handle(connection), condition);
        self.same(input, Some(socket), checked_in.map(Came::Delivered));
    }

    fn establish(&mut self) {
        let now = self.twins.now;
        if self.is_load_balanced && self.choices.up_to(2) > 0 {
            let place = self.choices.up_to(self.pending.len() as u64) as usize;
            let connection = self.pending.get(place).copied().unwrap_or_else(|| self.a_connection());
            let service = [self.choices.up_to(1) as u8; 12];
            let told = self.twins.abi.hello(now, connection, service).map(|()| Came::Done);
            let address = std::sync::Arc::new(cmap_core::address::ServerAddress::tcp("db.example", 27017));
            let description = Box::new(ServerDescription::new(address, ServerType::Unknown));
            self.same(Input::Hello(handle(connection), Some(ServiceId(service)), description), None, told);
            return;
        }
        let connection = self.take(|script| &mut script.pending);
        if self.choices.up_to(3) > 0 {
            self.sockets += 1;
            let socket = self.sockets;
            let established = self.twins.abi.established(now, connection, socket);
            if established == Err(CMAP_ERROR_SERVICE_UNKNOWN) {
                self.pending.push(connection);
            }
            self.same(Input::Established(handle(connection)), Some(socket), established.map(|()| Came::Done));
            return;
        }
        let (phase_number, phase) = self.one_of([
            (1, Phase::Resolve),
            (2, Phase::Proxy),
            (3, Phase::Connect),
            (4, Phase::Tls),
            (5, Phase::Hello),
            (6, Phase::Authenticate),
        ]);
        let (fault_number, code, fault) = self.a_fault();
        let keeps = self.choices.up_to(2) == 0;
        let failure = (phase_number, fault_number, code, if keeps { 2 } else { 1 });
        let failed = self.twins.abi.establish_failed(now, connection, failure, "it failed").map(|()| Came::Done);
        let mut error = EstablishError::new(phase, fault, "it failed");
        if keeps {
            error = error.with_server_labels(vec![SYSTEM_OVERLOADED_ERROR.to_owned()]);
        }
        self.same(Input::EstablishFailed(handle(connection), error), None, failed);
    }

    fn refresh(&mut self) {
        let (now, connection) = (self.twins.now, self.take(|script| &mut script.refreshing));
        if self.choices.up_to(1) == 0 {
            self.sockets += 1;
            let socket = self.sockets;
            let refreshed = self.twins.abi.refreshed(now, connection, socket).map(|()| Came::Done);
            return self.same(Input::Refreshed(handle(connection)), Some(socket), refreshed);
        }
        let (number, code, fault) = self.a_fault();
        let keeps = self.choices.up_to(1) == 0;
        let failure = (number, code, if keeps { 2 } else { 1 });
        let failed = self.twins.abi.refresh_failed(now, connection, failure, "lost").map(|()| Came::Done);
        let mut error = OperationError::new(fault, Cause::new("lost"));
        error.is_overload = keeps;
        self.twins.clears_for(handle(connection), &error);
        self.same(Input::RefreshFailed(handle(connection), error), None, failed);
    }

    fn clear(&mut self) {
        let service =
            (self.is_load_balanced != (self.choices.up_to(7) == 0)).then(|| [self.choices.up_to(1) as u8; 12]);
        let interrupts = self.choices.up_to(1) == 0;
        let cleared = self.twins.abi.clear(self.twins.now, service, interrupts, "for fun").map(|()| Came::Done);
        let cause = Cause::new("for fun");
        let clear =
            service.map_or_else(|| Clear::pool(cause.clone()), |id| Clear::service(ServiceId(id), cause.clone()));
        self.same(Input::Clear(if interrupts { clear.interrupting() } else { clear }), None, cleared);
    }

    fn resize(&mut self) {
        let (max, min) = (self.choices.up_to(6) as u32, self.choices.up_to(3) as u32);
        let json = format!(
            "{{\"maxPoolSize\": {max}, \"minPoolSize\": {min}, \"maxWaitQueueDepth\": 0, \"checkAfterIdleMS\": 5}}"
        );
        let resized = self.twins.abi.resize(self.twins.now, &json).map(|()| Came::Done);
        let sizes = PoolSizes::default().max_pool_size(max).min_pool_size(min);
        let limits = PoolLimits::from(sizes).max_wait_queue_depth(None).check_after_idle(Duration::from_millis(5));
        self.same(Input::Resize(limits), None, resized);
    }

    /// A call has come to what it has to, and a refusal says why.
    fn same(&mut self, input: Input, socket: Option<u64>, came: Result<Came, Code>) {
        let came = came.unwrap_or_else(Came::Refused);
        if let Came::Refused(_) = came {
            self.reached[9] += 1;
            assert!(!self.twins.misuse_text().is_empty());
        }
        let name = format!("{input:?}");
        assert_eq!(came, self.twins.call(input, socket), "{name}");
    }

    fn drain(&mut self) {
        while let Some(seen) = self.twins.poll() {
            self.take_note(&seen);
        }
        let some = self.connections.iter().rev().take(4).copied().collect::<Vec<_>>();
        self.twins.compare(&some);
    }

    fn take_note(&mut self, seen: &Seen) {
        if let Some(times) = self.reached.get_mut(seen.kind as usize).filter(|_| seen.kind > 0) {
            *times += 1;
        }
        match seen.kind {
            CMAP_CONNECT => {
                self.pending.push(seen.connection);
                self.connections.push(seen.connection);
            }
            CMAP_CHECK => self.checking.push(seen.connection),
            CMAP_REFRESH => self.refreshing.push(seen.connection),
            CMAP_DELIVER => {
                self.waiting.retain(|&waiting| waiting != seen.check_out);
                self.in_use.push((seen.check_out, seen.connection));
            }
            CMAP_FAIL => self.waiting.retain(|&waiting| waiting != seen.check_out),
            _ => {}
        }
    }

    /// One of a list that it leaves, or any connection.
    fn take(&mut self, list: impl Fn(&mut Self) -> &mut Vec<Connection>) -> Connection {
        let length = list(self).len() as u64;
        if length == 0 || self.choices.up_to(15) == 0 {
            return self.a_connection();
        }
        let place = self.choices.up_to(length - 1) as usize;
        list(self).swap_remove(place)
    }

    fn a_use(&mut self) -> (CheckOut, Connection) {
        if self.in_use.is_empty() || self.choices.up_to(15) == 0 {
            return (self.a_check_out(), self.a_connection());
        }
        let place = self.choices.up_to(self.in_use.len() as u64 - 1) as usize;
        self.in_use[place]
    }

    fn a_connection(&mut self) -> Connection {
        let place = self.choices.up_to(self.connections.len() as u64 - 1) as usize;
        self.connections[place]
    }

    fn a_check_out(&mut self) -> CheckOut {
        if !self.waiting.is_empty() && self.choices.up_to(3) > 0 {
            let place = self.choices.up_to(self.waiting.len() as u64 - 1) as usize;
            return self.waiting[place];
        }
        let place = self.choices.up_to(self.check_outs.len() as u64 - 1) as usize;
        self.check_outs[place]
    }

    fn a_fault(&mut self) -> (u32, i32, Fault) {
        self.one_of([
            (1, 0, Fault::Network),
            (2, 0, Fault::Timeout),
            (3, 91, Fault::Server { code: Some(91) }),
            (3, 0, Fault::Server { code: None }),
            (4, 0, Fault::Other),
        ])
    }

    fn one_of<T: Copy, const N: usize>(&mut self, all: [T; N]) -> T {
        all[self.choices.up_to(N as u64 - 1) as usize]
    }
}

fn handle(connection: Connection) -> Handle {
    Handle::from_bits(connection.opaque).unwrap()
}

fn id(check_out: CheckOut) -> CheckOutId {
    CheckOutId::from_bits(check_out.opaque).unwrap()
}

fn cmap_check_out_index_of(check_out: CheckOut) -> u32 {
    // SAFETY: it is a local variable.
    unsafe { cmap_check_out_index(&raw const check_out) }
}

/// Options, as JSON and as the core has them.
fn options(choices: &mut Choices<'_>) -> (String, PoolOptions) {
    let mut options = PoolOptions::default();
    options.seed = choices.up_to(255);
    let mut json = vec![format!("\"seed\": {}", options.seed)];
    let mut is_set = |of| choices.up_to(of) == 0;
    if !is_set(3) {
        json.push("\"maxPoolSize\": 3".into());
        options.max_pool_size = Some(3);
    }
    if is_set(2) {
        json.push("\"minPoolSize\": 2".into());
        options.min_pool_size = Some(2);
    }
    if is_set(3) {
        json.push("\"maxConnecting\": 3".into());
        options.max_connecting = Some(3);
    }
    if is_set(2) {
        json.push("\"maxIdleTimeMS\": 40".into());
        options.max_idle_time = Some(Duration::from_millis(40));
    }
    if is_set(1) {
        json.push("\"waitQueueTimeoutMS\": 30".into());
        options.wait_queue_timeout = Some(Duration::from_millis(30));
    }
    if is_set(4) {
        json.push("\"loadBalanced\": true".into());
        options.load_balanced = true;
    }
    if is_set(1) {
        json.push("\"checkAfterIdleMS\": 10".into());
        options.check_after_idle = Some(Duration::from_millis(10));
    }
    if is_set(2) {
        json.push("\"maintenanceMS\": 20".into());
        options.maintenance = Some(Maintenance::Every(Duration::from_millis(20)));
    }
    if is_set(2) {
        json.push("\"backoff\": false".into());
        options.backoff = Some(false);
    }
    if is_set(4) {
        json.push("\"maxWaitQueueDepth\": \"2x\"".into());
        options.max_wait_queue_depth = Some(QueueDepth::TimesMaxPoolSize(2));
    }
    if is_set(4) {
        json.push("\"affinity\": \"require\"".into());
        options.affinity = Some(Affinity::Require);
    }
    if is_set(1) {
        json.push("\"refreshRequirementMS\": 30, \"refreshTimeoutMS\": 20".into());
        options.refresh_requirement = Some(Duration::from_millis(30));
        options.refresh_timeout = Some(Duration::from_millis(20));
    }
    if is_set(4) {
        json.push("\"maxLifetimeMS\": 200, \"maxUses\": 9".into());
        options.max_lifetime = Some(Duration::from_millis(200));
        options.max_uses = Some(9);
    }
    (format!("{{{}}}", json.join(", ")), options)
}
