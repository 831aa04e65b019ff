//! A server and its monitor as one: check-outs wait for the server, checks and errors act on pool and monitor together.

#![cfg(all(feature = "wire", feature = "auth"))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, missing_docs, reason = "a test fails by panicking")]

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, cstr, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{ClientMetadata, EstablishError, Fault, Phase};
use cmap_core::monitor::{self, MonitorOptions, Role, Socket};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Cancellation, Cause, CheckOutId, CheckOutRequest, Handle, Pool, PoolState};
use cmap_core::server::{
    CheckOut, Endpoint, OperationError, Output, SelectionErrorKind, SelectionId, ServerOptions, ServerType, StateChange,
};
use cmap_core::time::Instant;
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

/// An endpoint under test; what came out of it, by name and in order.
struct Bench {
    endpoint: Endpoint<()>,
    now: Instant,
    log: Vec<String>,
    check: Option<Socket>,
    request: Option<i32>,
    pending: Vec<Handle>,
    delivered: Vec<(CheckOutId, Handle)>,
    selected: Vec<(SelectionId, CheckOutId)>,
    failed: Vec<(SelectionId, String)>,
}

fn bench(pool: PoolOptions) -> Bench {
    let now = Instant::from_millis(1);
    let pool = Pool::new(ServerAddress::tcp("db.example", 27017), pool, now).unwrap();
    let monitor = MonitorOptions::new(ClientMetadata::new("Linux"));
    let mut bench = Bench {
        endpoint: Endpoint::new(now, pool, ServerOptions::default(), monitor),
        now,
        log: Vec::new(),
        check: None,
        request: None,
        pending: Vec::new(),
        delivered: Vec::new(),
        selected: Vec::new(),
        failed: Vec::new(),
    };
    bench.drain();
    bench
}

/// An endpoint whose first check has found a standalone server.
fn known() -> Bench {
    let mut bench = bench(PoolOptions::default());
    bench.answer(&hello(21));
    bench.log.clear();
    bench
}

fn hello(max_wire_version: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 1, "helloOk": true, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": max_wire_version }
}

fn reset() -> OperationError {
    OperationError::new(Fault::Network, Cause::new("connection reset"))
}

impl Bench {
    fn call<R>(&mut self, call: impl FnOnce(&mut Endpoint<()>, Instant) -> R) -> R {
        let result = call(&mut self.endpoint, self.now);
        self.drain();
        result
    }

    fn check_out(&mut self, request: CheckOutRequest) -> CheckOut {
        self.call(|endpoint, now| endpoint.server_mut().check_out(now, request))
    }

    fn selecting(&mut self, request: CheckOutRequest) -> SelectionId {
        let CheckOut::Selecting(selection) = self.check_out(request) else { panic!("the server is usable") };
        selection
    }

    /// A connection that is in use.
    fn in_use(&mut self) -> Handle {
        self.check_out(CheckOutRequest::default());
        let connection = self.pending.pop().unwrap();
        self.call(|endpoint, now| endpoint.server_mut().pool_mut().handle_established(now, connection, ()).unwrap());
        self.delivered.last().unwrap().1
    }

    /// The server answers the check that is under way.
    fn answer(&mut self, reply: &RawDocumentBuf) {
        let (socket, request) = (self.check.unwrap(), self.request.take().expect("a hello waits"));
        let mut bytes = Vec::new();
        let ids = MessageIds::reply(7, request);
        MessageWriter::begin(&mut bytes, ids, Flags::NONE, reply, &[], &Limits::DEFAULT).unwrap().finish();
        self.call(|endpoint, now| endpoint.monitor_mut().unwrap().handle_bytes(now, socket, &bytes));
    }

    fn fail_check(&mut self, fault: Fault) {
        let socket = self.check.unwrap();
        let cause = Cause::new("nobody there");
        self.call(|endpoint, now| endpoint.monitor_mut().unwrap().handle_failed(now, socket, fault, cause));
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(timeout) = self.endpoint.poll_timeout().filter(|timeout| timeout.at <= end) {
            self.now = self.now.max(timeout.at);
            self.call(Endpoint::handle_timeout);
            assert!(self.endpoint.poll_timeout().is_none_or(|next| next.at > self.now));
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                Output::Event(event) => self.log.push(event.name().into()),
                Output::Pool(pool::Output::Event(event)) => self.log.push(event.name().into()),
                Output::Pool(pool::Output::Action(action)) => match action {
                    pool::Action::Connect { connection } => self.pending.push(connection),
                    pool::Action::Deliver { check_out, connection, .. } => self.delivered.push((check_out, connection)),
                    pool::Action::Interrupt { .. } => self.log.push("Interrupt".into()),
                    pool::Action::Check { .. } | pool::Action::Fail { .. } | pool::Action::Close { .. } => {}
                },
                Output::Selected { selection, check_out } => {
                    self.log.push("Selected".into());
                    self.selected.push((selection, check_out));
                }
                Output::SelectionFailed { selection, error } => self.failed.push((selection, error.to_string())),
                Output::Monitor(action) => self.act(action),
            }
        }
    }

    fn act(&mut self, action: monitor::Action) {
        match action {
            monitor::Action::Connect(socket) if socket.role == Role::Check => {
                self.check = Some(socket);
                self.endpoint.monitor_mut().unwrap().handle_connected(self.now, socket);
            }
            monitor::Action::Send(socket) if socket.role == Role::Check => {
                let mut bytes = Vec::new();
                self.endpoint.monitor_mut().unwrap().write_to(socket, &mut bytes);
                let (mut frames, mut input) = (FrameReader::new(), bytes.as_slice());
                let frame = frames.read(&mut input, &Limits::DEFAULT).unwrap().unwrap();
                let mut decoder = Decoder::new();
                let Content::Message(message) = decoder.decode(frame, &Limits::DEFAULT).unwrap().content else {
                    panic!("everything is OP_MSG (HS-2)")
                };
                self.request = Some(message.header.ids.request_id);
            }
            monitor::Action::Close(socket) if Some(socket) == self.check => self.check = None,
            monitor::Action::Connect(_) | monitor::Action::Send(_) | monitor::Action::Close(_) => {}
        }
    }
}

#[test]
fn everything_opens_in_order_mon_14() {
    let bench = bench(PoolOptions::default());

    assert_eq!(
        bench.log,
        [
            "TopologyOpening",
            "TopologyDescriptionChanged",
            "ServerOpening",
            "ConnectionPoolCreated",
            "ServerHeartbeatStarted"
        ]
    );
}

#[test]
fn a_first_success_makes_the_pool_ready_sdam_1_sdam_3() {
    let mut bench = bench(PoolOptions::default());
    bench.log.clear();

    bench.answer(&hello(21));

    assert_eq!(
        bench.log,
        ["ServerHeartbeatSucceeded", "ServerDescriptionChanged", "TopologyDescriptionChanged", "ConnectionPoolReady"]
    );
    assert!(bench.endpoint.server().is_usable());
}

#[test]
fn check_outs_wait_for_the_server_and_go_on_in_the_order_of_their_arrival_csot_4() {
    let mut bench = bench(PoolOptions::default());
    let first = bench.selecting(CheckOutRequest::default());
    let second = bench.selecting(CheckOutRequest::default());
    bench.log.clear();

    bench.answer(&hello(21));

    assert_eq!(bench.selected.iter().map(|(selection, _)| *selection).collect::<Vec<_>>(), [first, second]);
    let from_ready: Vec<_> = bench.log.iter().skip_while(|name| *name != "ConnectionPoolReady").skip(1).collect();
    assert_eq!(
        from_ready,
        [
            "Selected",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "Selected",
            "ConnectionCheckOutStarted",
            "ConnectionCreated"
        ]
    );
}

#[test]
fn a_server_that_does_not_come_fails_the_wait_with_its_last_error_csot_4() {
    let mut bench = bench(PoolOptions::default());
    let selection = bench.selecting(CheckOutRequest::default());
    bench.fail_check(Fault::Network);

    bench.pass(29_999);
    assert_eq!(bench.failed, []);
    bench.pass(1);

    let [(failed, text)] = bench.failed.as_slice() else { panic!("{:?}", bench.failed) };
    assert_eq!(*failed, selection);
    assert!(text.contains("db.example:27017") && text.contains("30s") && text.contains(": "), "{text}");
    assert_eq!(bench.endpoint.server().selecting(), 0);
}

#[test]
fn a_requests_own_deadline_ends_the_wait_sooner() {
    let mut bench = bench(PoolOptions::default());
    let deadline = bench.now + Duration::from_millis(50);
    bench.selecting(CheckOutRequest::until(deadline));

    bench.pass(50);

    assert_eq!(bench.failed.len(), 1);
}

#[test]
fn an_arrival_asks_for_a_check_at_the_pace_of_mon_3() {
    let mut bench = bench(PoolOptions::default());
    bench.fail_check(Fault::Network);
    bench.log.clear();

    bench.selecting(CheckOutRequest::default());
    bench.pass(499);
    assert_eq!(bench.log, [""; 0]);
    bench.pass(1);
    assert_eq!(bench.log, ["ServerHeartbeatStarted"]);
}

#[test]
fn while_somebody_waits_a_failed_check_is_repeated_soon_mon_3() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());
    bench.fail_check(Fault::Network);

    bench.pass(500);
    bench.answer(&hello(21));

    assert_eq!(bench.selected.len(), 1, "not after heartbeatFrequencyMS");
}

#[test]
fn while_somebody_waits_a_server_that_cannot_be_used_yet_is_checked_again_soon_mon_3() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());
    bench.answer(&rawdoc! { "ok": 1, "isreplicaset": true, "minWireVersion": 0, "maxWireVersion": 21 });
    assert_eq!(bench.selected.len(), 0);

    bench.pass(500);
    bench.answer(&hello(21));

    assert_eq!(bench.selected.len(), 1, "not after heartbeatFrequencyMS");
}

#[test]
fn while_somebody_waits_a_cancelled_check_is_followed_by_another_soon_mon_3_mon_12() {
    let mut bench = bench(PoolOptions::default());
    let topology_version = rawdoc! { "processId": ObjectId::from_bytes([1; 12]), "counter": 1_i64 };
    let mut streaming = hello(21);
    streaming.append(cstr!("topologyVersion"), topology_version);
    bench.answer(&streaming);
    let (stepped_down, gone) = (bench.in_use(), bench.in_use());
    let mut not_primary = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    not_primary.state_change = Some(StateChange::NotWritablePrimary);
    bench.call(|it, now| it.server_mut().handle_operation_failed(now, stepped_down, not_primary).unwrap());
    bench.selecting(CheckOutRequest::default());
    bench.call(|it, now| it.server_mut().handle_operation_failed(now, gone, reset()).unwrap());
    bench.log.clear();

    bench.pass(499);
    assert_eq!(bench.log, [""; 0]);
    bench.pass(1);
    assert_eq!(bench.log, ["ServerHeartbeatStarted"]);
}

#[test]
fn a_wait_that_is_cancelled_leaves_nothing_behind() {
    let mut bench = bench(PoolOptions::default());
    let check_out = bench.check_out(CheckOutRequest::default());

    let met = bench.call(|endpoint, now| endpoint.server_mut().cancel_check_out(now, check_out));
    bench.answer(&hello(21));

    assert_eq!((met, bench.selected.len(), bench.pending.len()), (Cancellation::Cancelled, 0, 0));
    let met = bench.call(|endpoint, now| endpoint.server_mut().cancel_check_out(now, check_out));
    assert_eq!(met, Cancellation::Finished);
}

#[test]
fn a_server_too_old_says_so_at_once_sdam_19() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());

    bench.answer(&hello(6));
    bench.selecting(CheckOutRequest::default());

    assert_eq!(bench.failed.len(), 2);
    assert!(bench.failed.iter().all(|(_, text)| text.contains("update the server")), "{:?}", bench.failed);
    assert_eq!(bench.endpoint.server().pool().state(), PoolState::Paused);
}

#[test]
fn a_network_error_of_an_operation_cancels_the_check_and_clears_sdam_10_mon_12() {
    let mut bench = known();
    let connection = bench.in_use();
    bench.pass(9_999);
    bench.pass(1);
    bench.log.clear();

    bench.call(|endpoint, now| endpoint.server_mut().handle_operation_failed(now, connection, reset()).unwrap());

    assert_eq!(
        bench.log,
        ["ServerDescriptionChanged", "TopologyDescriptionChanged", "ConnectionPoolCleared", "ServerHeartbeatFailed"]
    );
    bench.pass(9_999);
    assert_eq!(bench.check, None, "no immediate check");
}

#[test]
fn a_state_change_is_looked_into_at_once_and_keeps_the_pool_sdam_14_sdam_15() {
    let mut bench = known();
    let connection = bench.in_use();
    bench.pass(1_000);
    bench.log.clear();
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);

    bench.call(|endpoint, now| endpoint.server_mut().handle_operation_failed(now, connection, error).unwrap());

    assert_eq!(bench.log, ["ServerDescriptionChanged", "TopologyDescriptionChanged", "ServerHeartbeatStarted"]);
    assert_eq!(bench.endpoint.server().pool().state(), PoolState::Ready);
    assert!(matches!(bench.check_out(CheckOutRequest::default()), CheckOut::Selecting(_)));
}

#[test]
fn a_check_that_fails_makes_the_server_unknown_and_is_repeated_after_that_mon_9() {
    let mut bench = known();
    bench.pass(10_000);
    bench.log.clear();

    bench.fail_check(Fault::Network);

    assert_eq!(
        bench.log,
        [
            "ServerHeartbeatFailed",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolCleared",
            "ServerHeartbeatStarted"
        ]
    );
}

#[test]
fn only_a_check_that_timed_out_interrupts_mon_9() {
    for (fault, interrupts) in [(Fault::Timeout, true), (Fault::Network, false)] {
        let mut bench = known();
        bench.in_use();
        bench.pass(10_000);

        bench.fail_check(fault);

        assert_eq!(bench.log.iter().any(|name| name == "Interrupt"), interrupts, "{fault:?}");
    }
}

#[test]
fn an_overloaded_server_stays_known_sdam_7() {
    let mut bench = known();
    bench.check_out(CheckOutRequest::default());
    let connection = bench.pending.pop().unwrap();
    let error = EstablishError::new(Phase::Hello, Fault::Timeout, "no answer");

    bench.call(|endpoint, now| endpoint.server_mut().handle_establish_failed(now, connection, error).unwrap());

    assert!(bench.endpoint.server().is_usable());
}

#[test]
fn a_misuse_leaves_the_server_as_it_is() {
    let mut bench = known();
    let connection = bench.in_use();
    let error = EstablishError::new(Phase::Authenticate, Fault::Server { code: Some(18) }, "no");

    let misuse = bench.call(|endpoint, now| endpoint.server_mut().handle_establish_failed(now, connection, error));

    assert!(misuse.is_err() && bench.endpoint.server().is_usable());
}

#[test]
fn equal_descriptions_make_no_event_sdam_17() {
    let mut bench = known();
    bench.pass(10_000);
    bench.log.clear();

    bench.answer(&hello(21));

    assert_eq!(bench.log, ["ServerHeartbeatSucceeded"]);
}

#[test]
fn a_load_balancer_is_known_at_once_and_never_checked_lb_3_lb_4() {
    let mut options = PoolOptions::default();
    options.load_balanced = true;
    let mut bench = bench(options);

    assert_eq!(
        bench.log,
        [
            "TopologyOpening",
            "TopologyDescriptionChanged",
            "ServerOpening",
            "ConnectionPoolCreated",
            "ServerDescriptionChanged",
            "TopologyDescriptionChanged",
            "ConnectionPoolReady"
        ]
    );
    assert!(bench.endpoint.monitor().is_none());
    assert_eq!(bench.endpoint.server().description().server_type, ServerType::LoadBalancer);
    assert!(matches!(bench.check_out(CheckOutRequest::default()), CheckOut::Started(_)));
}

#[test]
fn closing_ends_the_check_first_and_the_topology_last_mon_14() {
    let mut bench = bench(PoolOptions::default());
    bench.selecting(CheckOutRequest::default());
    bench.log.clear();

    bench.call(Endpoint::close);

    assert_eq!(
        bench.log,
        [
            "ServerHeartbeatFailed",
            "ConnectionPoolClosed",
            "ServerClosed",
            "TopologyDescriptionChanged",
            "TopologyClosed"
        ]
    );
    assert_eq!((bench.failed.len(), bench.check, bench.endpoint.poll_timeout()), (1, None, None));
    assert!(matches!(bench.check_out(CheckOutRequest::default()), CheckOut::Started(_)), "the pool says why");
}

#[test]
fn a_closed_client_says_so_to_who_waited() {
    let mut bench = bench(PoolOptions::default());
    bench.endpoint.server_mut().check_out(bench.now, CheckOutRequest::default());
    bench.endpoint.close(bench.now);

    let kinds: Vec<_> = std::iter::from_fn(|| bench.endpoint.poll_output())
        .filter_map(
            |output| if let Output::SelectionFailed { error, .. } = output { Some(error.kind.clone()) } else { None },
        )
        .collect();
    assert_eq!(kinds, [SelectionErrorKind::Closed]);
}

#[test]
fn a_server_copied_as_data_goes_on_as_the_original() {
    let mut bench = known();
    bench.in_use();
    let text = serde_json::to_string(bench.endpoint.server()).unwrap();

    let copy: cmap_core::server::Server<()> = serde_json::from_str(&text).unwrap();

    assert_eq!(copy.description(), bench.endpoint.server().description());
    assert_eq!(copy.poll_timeout(), bench.endpoint.server().poll_timeout());
    assert!(copy.is_usable());
}

#[test]
fn nobody_listening_saves_the_events() {
    let mut bench = known();
    bench.endpoint.server_mut().observe(false);
    bench.pass(10_000);
    bench.fail_check(Fault::Network);

    assert_eq!(bench.log, [""; 0]);
}

#[test]
fn a_warm_pair_allocates_nothing_through_the_endpoint() {
    let mut bench = known();
    let connection = bench.in_use();
    let mut endpoint = bench.endpoint;
    let pair = |endpoint: &mut Endpoint<()>, mut connection: Handle, now: Instant| {
        endpoint.server_mut().pool_mut().check_in(now, connection, (), pool::Condition::Usable).unwrap();
        while endpoint.poll_output().is_some() {}
        endpoint.server_mut().check_out(now, CheckOutRequest::default());
        while let Some(output) = endpoint.poll_output() {
            if let Output::Pool(pool::Output::Action(pool::Action::Deliver { connection: delivered, .. })) = output {
                connection = delivered;
            }
        }
        connection
    };
    let mut connection = pair(&mut endpoint, connection, bench.now);

    let allocations = allocation_counter::measure(|| {
        for _ in 0..1000 {
            connection = pair(&mut endpoint, connection, bench.now);
        }
    });

    assert_eq!(allocations.count_total, 0);
}

#[test]
fn a_forked_process_begins_anew_fork_2() {
    let mut bench = known();
    bench.in_use();
    let parents_socket = bench.check.unwrap();

    bench.call(Endpoint::reset_after_fork);

    assert_eq!(bench.endpoint.server().description().server_type, ServerType::Unknown);
    assert_eq!(bench.endpoint.server().pool().counts().total(), 0);
    assert_ne!(bench.check.unwrap(), parents_socket, "a socket of its own asks the server");
    bench.answer(&hello(21));
    bench.in_use();
}

#[test]
fn who_waited_for_the_server_when_the_process_was_forked_waits_no_more_fork_2() {
    let mut bench = bench(PoolOptions::default());
    let selection = bench.selecting(CheckOutRequest::default());

    bench.call(Endpoint::reset_after_fork);

    let [(failed, error)] = bench.failed.as_slice() else { panic!("{:?}", bench.failed) };
    assert_eq!((*failed, bench.endpoint.server().selecting()), (selection, 0));
    assert!(error.contains("forked"), "{error}");
    bench.answer(&hello(21));
    bench.in_use();
}

#[test]
fn a_fork_behind_a_load_balancer_leaves_it_usable_fork_2() {
    let mut options = PoolOptions::default();
    options.load_balanced = true;
    let mut bench = bench(options);

    bench.call(Endpoint::reset_after_fork);

    assert!(bench.endpoint.server().is_usable());
    assert_eq!(bench.endpoint.server().pool().state(), PoolState::Ready);
}
