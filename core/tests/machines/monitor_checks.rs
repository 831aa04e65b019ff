//! The monitor in virtual time: when it checks, what it asks, and how it treats an answer or a missing one.

use std::time::Duration;

use crate::monitored::{Bench, hello, options, streaming_hello};
use bson::{RawDocument, rawdoc};
use cmap_core::connection::{ClientMetadata, Fault};
use cmap_core::monitor::{Finding, HeartbeatEvent, MonitorOptions, Role, TimeoutReason};
use cmap_core::options::{ClientOptions, ServerApi, ServerApiVersion};
use cmap_core::wire::{HEADER_LEN, Header, MessageIds, OpCode};

fn polling() -> Bench {
    Bench::new(options(|options| options.streams = false))
}

fn streaming() -> Bench {
    let mut bench = Bench::new(options(|_| {}));
    bench.greet(Role::Check, &streaming_hello(1));
    bench
}

fn has(document: Option<&bson::RawDocumentBuf>, field: &str) -> bool {
    let document: &RawDocument = document.unwrap();
    document.get(field).unwrap().is_some()
}

#[test]
fn a_heartbeat_starts_before_its_socket_is_opened_and_the_first_hello_is_the_check_mon_4_mon_13() {
    let mut bench = polling();

    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
    assert_eq!(bench.asked(Role::Check), None);

    bench.connect(Role::Check);
    assert!(has(bench.asked(Role::Check), "client"), "the first hello says who the client is");

    bench.reply(Role::Check, &hello(), false);
    assert_eq!(bench.events(), ["ServerHeartbeatSucceeded"]);
}

#[test]
fn checks_after_the_first_say_hello_without_the_client_hs_5_hs_6() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());

    bench.pass(10_000);

    let asked = bench.asked(Role::Check);
    assert!(has(asked, "hello") && !has(asked, "client") && !has(asked, "helloOk"));
}

#[test]
fn every_check_declares_the_server_api_and_says_hello_hs_3() {
    let (mut client, _) = ClientOptions::parse("mongodb://db.example/?serverMonitoringMode=poll").unwrap();
    client.server_api = Some(ServerApi::new(ServerApiVersion::V1));
    let mut bench = Bench::new(MonitorOptions::of_client(&client, ClientMetadata::new("Linux")));
    bench.connect(Role::Check);
    assert!(has(bench.asked(Role::Check), "hello") && has(bench.asked(Role::Check), "apiVersion"));
    bench.reply(Role::Check, &hello(), false);

    bench.pass(10_000);

    assert!(has(bench.asked(Role::Check), "hello") && has(bench.asked(Role::Check), "apiVersion"));
}

#[test]
fn a_server_without_hello_ok_is_asked_by_the_old_name_hs_5() {
    let mut bench = polling();
    bench.greet(Role::Check, &rawdoc! { "ok": 1, "ismaster": true, "maxWireVersion": 21 });

    bench.pass(10_000);

    assert!(has(bench.asked(Role::Check), "isMaster") && has(bench.asked(Role::Check), "helloOk"));
}

#[test]
fn the_next_check_comes_heartbeat_frequency_after_the_end_of_the_last_mon_2() {
    let mut bench = polling();
    bench.pass(300);
    bench.greet(Role::Check, &hello());
    bench.events();

    bench.pass(9_999);
    assert_eq!(bench.events(), [""; 0]);

    bench.pass(1);
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
}

#[test]
fn a_requested_check_waits_out_half_a_second_since_the_last_mon_3() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());
    bench.events();

    bench.pass(100);
    for _ in 0..10 {
        bench.call(|monitor, now| monitor.request_check(now));
    }
    bench.pass(399);
    assert_eq!(bench.events(), [""; 0]);

    bench.pass(1);
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
}

#[test]
fn a_check_that_is_under_way_satisfies_a_request_x_9() {
    let mut bench = polling();
    bench.connect(Role::Check);
    bench.call(|monitor, now| monitor.request_check(now));

    bench.reply(Role::Check, &hello(), false);
    bench.events();
    bench.pass(9_999);

    assert_eq!(bench.events(), [""; 0]);
}

#[test]
fn many_requests_for_an_unknown_server_are_two_checks_a_second_at_most() {
    let mut bench = polling();
    let mut started = 0;
    for _ in 0..200 {
        bench.call(|monitor, now| monitor.request_check(now));
        if bench.socket(Role::Check).is_some() {
            bench.fail(Role::Check, Fault::Network);
        }
        started += bench.events().iter().filter(|&&name| name == "ServerHeartbeatStarted").count();
        bench.pass(10);
    }

    assert!((4..=5).contains(&started), "{started} checks in two seconds");
}

#[test]
fn a_known_server_that_is_lost_is_tried_again_at_once_and_only_once_mon_9() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());
    bench.pass(10_000);
    bench.events();

    bench.fail(Role::Check, Fault::Network);
    assert_eq!(bench.events(), ["ServerHeartbeatFailed", "ServerHeartbeatStarted"]);

    bench.fail(Role::Check, Fault::Network);
    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
    bench.pass(9_999);
    assert_eq!(bench.events(), [""; 0]);
}

#[test]
fn a_server_that_refuses_its_hello_is_not_asked_again_at_once_mon_9() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());
    bench.pass(10_000);
    bench.events();

    bench.reply(Role::Check, &rawdoc! { "ok": 0, "code": 91, "errmsg": "shutting down" }, false);

    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
    assert!(matches!(bench.findings.last(), Some(Finding::Failure { fault: Fault::Server { code: Some(91) }, .. })));
    assert_eq!(bench.socket(Role::Check), None);
}

#[test]
fn a_server_that_is_known_no_more_is_not_tried_again_at_once_mon_9() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());
    bench.pass(10_000);
    bench.events();

    bench.monitor.mark_unknown();
    bench.fail(Role::Check, Fault::Network);

    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
}

#[test]
fn connecting_and_reading_have_connect_timeout_each_mon_1() {
    let mut bench = polling();
    bench.pass(9_000);
    bench.connect(Role::Check);
    bench.events();

    bench.pass(9_999);
    assert_eq!(bench.events(), [""; 0]);

    bench.pass(1);
    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
    assert!(matches!(bench.findings.as_slice(), [Finding::Failure { fault: Fault::Timeout, .. }]));
}

#[test]
fn no_connect_timeout_is_no_limit_mon_8() {
    let mut bench = Bench::new(options(|options| options.connect_timeout = Duration::ZERO));
    assert_eq!(bench.monitor.poll_timeout(), None);

    bench.connect(Role::Check);
    assert_eq!(bench.monitor.poll_timeout(), None);
}

#[test]
fn a_server_that_can_is_asked_to_stream_at_once_mon_7() {
    let mut bench = Bench::new(options(|_| {}));

    bench.greet(Role::Check, &streaming_hello(1));

    let asked = bench.asked(Role::Check);
    assert!(has(asked, "topologyVersion") && !has(asked, "client"));
    assert_eq!(asked.unwrap().get_i64("maxAwaitTimeMS").ok(), Some(10_000));
    assert_eq!(bench.events(), ["ServerHeartbeatStarted", "ServerHeartbeatSucceeded", "ServerHeartbeatStarted"]);
}

#[test]
fn every_streamed_reply_is_a_heartbeat_and_none_is_asked_for_mon_7_mon_13() {
    let mut bench = streaming();
    bench.events();

    for counter in 2..5 {
        bench.pass(700);
        bench.reply(Role::Check, &streaming_hello(counter), true);

        let events: Vec<_> = bench.events.drain(..).map(|(_, event)| event).collect();
        let [HeartbeatEvent::Succeeded { awaited, duration, .. }, HeartbeatEvent::Started { awaited: next, .. }] =
            events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!((*awaited, *next, *duration), (true, true, Duration::from_millis(700)));
    }
}

#[test]
fn several_streamed_replies_may_come_at_once() {
    let mut bench = streaming();
    bench.events();
    let mut bytes = bench.encode(Role::Check, &streaming_hello(2), true);
    bytes.extend(bench.encode(Role::Check, &streaming_hello(3), true));
    let socket = bench.socket(Role::Check).unwrap();

    let (front, back) = bytes.split_at(bytes.len() / 2 + 7);
    for piece in [front, back] {
        bench.call(|monitor, now| monitor.handle_bytes(now, socket, piece));
    }

    assert_eq!(bench.events().iter().filter(|&&name| name == "ServerHeartbeatSucceeded").count(), 2);
}

#[test]
fn the_stream_is_asked_for_anew_where_the_server_ends_it_mon_7() {
    let mut bench = streaming();

    bench.reply(Role::Check, &streaming_hello(5), false);

    let version = bench.asked(Role::Check).unwrap().get_document("topologyVersion").unwrap();
    assert_eq!(version.get_i64("counter").ok(), Some(5));
}

#[test]
fn an_awaited_reply_has_heartbeat_frequency_more_mon_8() {
    let mut bench = streaming();
    bench.greet(Role::RoundTrip, &hello());
    bench.events();
    let overdue = bench.now + Duration::from_secs(20);

    bench.pass(19_999);
    assert_eq!(bench.events(), [""; 0]);

    bench.pass(1);
    assert_eq!(bench.events.first().map(|(at, _)| *at), Some(overdue));
    assert_eq!(bench.events(), ["ServerHeartbeatFailed", "ServerHeartbeatStarted"]);
}

#[test]
fn nothing_is_streamed_or_measured_where_polling_was_asked_for_mon_6() {
    let mut bench = polling();
    bench.greet(Role::Check, &streaming_hello(1));
    assert_eq!(bench.asked(Role::Check), None);

    bench.pass(10_000);

    assert!(!has(bench.asked(Role::Check), "topologyVersion"));
    assert_eq!(bench.socket(Role::RoundTrip), None);
}

/// A monitor that waits for awaited replies for so many milliseconds, and whose server could stream.
fn with_awaited_timeout(millis: u64, newest_wire_version: i32) -> Bench {
    let mut bench = Bench::new(options(|options| {
        options.connect_timeout = Duration::from_millis(millis - 5000);
        options.heartbeat_frequency = Duration::from_millis(5000);
    }));
    let mut reply = rawdoc! { "ok": 1, "helloOk": true, "isWritablePrimary": true };
    reply.append(bson::cstr!("maxWireVersion"), newest_wire_version);
    let version = streaming_hello(1).get_document("topologyVersion").unwrap().to_owned();
    reply.append(bson::cstr!("topologyVersion"), version);
    bench.greet(Role::Check, &reply);
    bench
}

#[test]
fn a_server_that_would_answer_too_late_for_its_monitor_is_polled_x_155() {
    let mut bench = with_awaited_timeout(10_000, 21);
    assert_eq!((bench.asked(Role::Check), bench.socket(Role::RoundTrip)), (None, None));

    bench.pass(5000);

    assert!(!has(bench.asked(Role::Check), "topologyVersion"));
    assert_eq!(bench.findings.len(), 1);
}

#[test]
fn a_server_whose_monitor_waits_for_long_enough_streams_x_155() {
    for (millis, newest_wire_version) in [(10_001, 21), (7000, 20), (7000, 22)] {
        let bench = with_awaited_timeout(millis, newest_wire_version);

        assert!(has(bench.asked(Role::Check), "topologyVersion"), "{millis} ms, {newest_wire_version}");
    }
}

#[test]
fn a_monitor_without_a_time_limit_streams_from_any_server_x_155() {
    let mut bench = Bench::new(options(|options| options.connect_timeout = Duration::ZERO));

    bench.greet(Role::Check, &streaming_hello(1));

    assert!(has(bench.asked(Role::Check), "topologyVersion"));
}

#[test]
fn functions_as_a_service_are_polled_mon_6() {
    let mut metadata = cmap_core::connection::ClientMetadata::new("Linux");
    metadata.environment.name = Some("aws.lambda");

    assert!(!cmap_core::monitor::MonitorOptions::new(metadata).streams);
}

#[test]
fn round_trips_are_measured_apart_while_the_server_streams_mon_10() {
    let mut bench = streaming();
    bench.connect(Role::RoundTrip);
    bench.pass(30);
    bench.reply(Role::RoundTrip, &hello(), false);
    assert_eq!(bench.monitor.round_trip_times().average(), Some(Duration::from_millis(6)));

    bench.pass(9_999);
    assert_eq!(bench.asked(Role::RoundTrip), None);
    bench.pass(1);
    assert!(has(bench.asked(Role::RoundTrip), "hello"));
}

#[test]
fn awaited_replies_measure_nothing_mon_10() {
    let mut bench = streaming();
    let before = bench.monitor.round_trip_times().clone();

    bench.pass(700);
    bench.reply(Role::Check, &streaming_hello(2), true);

    assert_eq!(*bench.monitor.round_trip_times(), before);
}

#[test]
fn a_measurement_that_fails_says_nothing_and_is_tried_again_later_mon_10() {
    let mut bench = streaming();
    bench.events();
    bench.fail(Role::RoundTrip, Fault::Network);
    assert_eq!((bench.events().len(), bench.findings.len()), (0, 1));

    bench.pass(9_999);
    assert_eq!(bench.socket(Role::RoundTrip), None);
    bench.pass(1);
    assert!(bench.socket(Role::RoundTrip).is_some());
}

#[test]
fn a_failed_check_forgets_the_round_trip_times_and_ends_their_measurement_mon_11() {
    let mut bench = streaming();
    bench.greet(Role::RoundTrip, &hello());
    assert!(bench.monitor.round_trip_times().average().is_some());

    bench.fail(Role::Check, Fault::Network);

    assert_eq!(bench.monitor.round_trip_times().average(), None);
    assert_eq!(bench.socket(Role::RoundTrip), None);
}

#[test]
fn a_server_that_becomes_unknown_is_measured_anew_sdam_22() {
    let mut bench = polling();
    bench.connect(Role::Check);
    bench.pass(900);
    bench.reply(Role::Check, &hello(), false);

    bench.monitor.mark_unknown();
    bench.pass(10_000);
    bench.pass(10);
    bench.reply(Role::Check, &hello(), false);

    let [_, Finding::Description(second)] = bench.findings.as_slice() else { panic!("{:?}", bench.findings) };
    assert_eq!(second.round_trip_time, Some(Duration::from_millis(10)));
}

#[test]
fn the_description_has_the_round_trip_times_mon_11() {
    let mut bench = polling();
    bench.connect(Role::Check);
    bench.pass(20);
    bench.reply(Role::Check, &hello(), false);
    bench.pass(10_000);
    bench.pass(10);
    bench.reply(Role::Check, &hello(), false);

    let [_, Finding::Description(second)] = bench.findings.as_slice() else { panic!("{:?}", bench.findings) };
    assert_eq!(second.round_trip_time, Some(Duration::from_millis(18)));
    assert_eq!(second.min_round_trip_time, Duration::from_millis(10));
}

#[test]
fn a_cancelled_check_ends_closes_its_socket_and_waits_mon_12() {
    let mut bench = streaming();
    bench.events();
    let socket = bench.socket(Role::Check).unwrap();

    bench.call(|monitor, now| monitor.cancel_check(now));

    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
    assert!(bench.closed.contains(&socket) && bench.peers.is_empty());
    assert_eq!(bench.findings.len(), 1, "the server is unknown already");
    bench.pass(9_999);
    assert_eq!(bench.events(), [""; 0]);
    bench.pass(1);
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
}

#[test]
fn a_cancellation_between_two_checks_closes_the_socket_and_changes_nothing_else_mon_12() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());
    bench.events();
    let (socket, before) = (bench.socket(Role::Check).unwrap(), bench.monitor.poll_timeout());

    bench.call(|monitor, now| monitor.cancel_check(now));

    assert_eq!((bench.events().len(), bench.monitor.poll_timeout()), (0, before));
    assert!(bench.closed.contains(&socket) && bench.peers.is_empty());
    bench.pass(10_000);
    assert_eq!(bench.socket(Role::Check).map(|socket| socket.number), Some(2));
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
}

#[test]
fn what_is_reported_of_a_closed_socket_is_ignored() {
    let mut bench = streaming();
    let socket = bench.socket(Role::Check).unwrap();
    bench.fail(Role::Check, Fault::Network);
    bench.events();

    bench.call(|monitor, now| {
        monitor.handle_connected(now, socket);
        monitor.handle_bytes(now, socket, &[1, 2, 3]);
        monitor.handle_failed(now, socket, Fault::Network, cmap_core::pool::Cause::new("late"));
    });

    assert_eq!(bench.events(), [""; 0]);
}

#[test]
fn a_socket_that_is_lost_between_two_checks_is_replaced_by_the_next_one() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());
    bench.events();

    bench.fail(Role::Check, Fault::Network);
    assert_eq!((bench.events().len(), bench.findings.len()), (0, 1));
    bench.pass(10_000);

    assert_eq!(bench.socket(Role::Check).map(|socket| socket.number), Some(2));
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
}

#[test]
fn what_is_no_message_fails_the_check() {
    let mut bench = polling();
    bench.connect(Role::Check);
    let socket = bench.socket(Role::Check).unwrap();

    bench.call(|monitor, now| monitor.handle_bytes(now, socket, b"HTTP/1.1 400 Bad Request\r\n\r\n"));

    assert!(matches!(bench.findings.as_slice(), [Finding::Failure { fault: Fault::Other, .. }]));
}

#[test]
fn closing_ends_the_check_and_everything_else_mon_12() {
    let mut bench = streaming();
    bench.events();

    bench.call(|monitor, now| monitor.close(now));

    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
    assert!(bench.peers.is_empty() && bench.monitor.poll_timeout().is_none());
    bench.call(|monitor, now| monitor.request_check(now));
    assert_eq!(bench.events(), [""; 0]);
}

#[test]
fn heartbeats_name_both_numbers_of_their_connection_log_14() {
    let mut bench = polling();
    bench.greet(Role::Check, &hello());

    let [(_, HeartbeatEvent::Started { connection: first, .. }), (_, second)] = bench.events.as_slice() else {
        panic!("{:?}", bench.events)
    };
    let HeartbeatEvent::Succeeded { connection: second, .. } = second else { panic!("{second:?}") };
    assert_eq!([first, second].map(|named| (named.id, named.server_id)), [(1, None), (1, Some(77))]);
}

#[test]
fn a_deadline_says_why_it_exists() {
    let mut bench = polling();
    assert_eq!(bench.monitor.poll_timeout().map(|timeout| timeout.reason), Some(TimeoutReason::Read));

    bench.greet(Role::Check, &hello());
    assert_eq!(bench.monitor.poll_timeout().map(|timeout| timeout.reason), Some(TimeoutReason::Heartbeat));
}

#[test]
fn a_hello_of_more_than_a_megabyte_fails_the_check_by_its_header() {
    for mut bench in [polling(), streaming()] {
        let socket = bench.socket(Role::Check).unwrap();
        bench.connect(Role::Check);
        let large = header(1024 * 1024 + 1);

        bench.call(|monitor, now| monitor.handle_bytes(now, socket, &large));

        let Some(Finding::Failure { fault: Fault::Other, cause }) = bench.findings.last() else {
            panic!("{:?}", bench.findings)
        };
        assert!(cause.to_string().contains("announces 1048577 bytes; at most 1048576 are allowed"), "{cause}");
        assert_eq!(bench.socket(Role::Check), None);
    }
}

#[test]
fn a_hello_of_more_than_a_megabyte_ends_a_measurement_by_its_header_mon_10() {
    let mut bench = streaming();
    let socket = bench.socket(Role::RoundTrip).unwrap();
    bench.connect(Role::RoundTrip);
    let large = header(1024 * 1024 + 1);

    bench.call(|monitor, now| monitor.handle_bytes(now, socket, &large));

    assert_eq!(bench.socket(Role::RoundTrip), None);
}

/// The header alone of a message of this many bytes.
fn header(length: usize) -> [u8; HEADER_LEN] {
    Header { length, ids: MessageIds::reply(1000, 1), op_code: OpCode::Msg }.encode()
}
