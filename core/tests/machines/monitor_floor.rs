//! The monitor in virtual time: no server can keep it busy, by hanging up, by streaming too fast with news or without, or by replies
//! that it was not allowed to send.

use crate::monitored::{Bench, hello, options, streaming_hello, streaming_hello_of};
use cmap_core::connection::Fault;
use cmap_core::monitor::{Finding, Role};

fn streaming() -> Bench {
    let mut bench = Bench::new(options(|_| {}));
    bench.greet(Role::Check, &streaming_hello(1));
    bench
}

/// Whether the server was asked to stream by the hello that waits on the socket of the checks.
fn is_asked_to_stream(bench: &Bench) -> bool {
    bench.asked(Role::Check).is_some_and(|hello| hello.get("topologyVersion").unwrap().is_some())
}

#[test]
fn a_known_server_that_is_lost_again_at_once_is_checked_half_a_second_later_mon_9() {
    let mut bench = streaming();
    bench.fail(Role::Check, Fault::Network);
    bench.pass(499);
    bench.greet(Role::Check, &streaming_hello(1));
    bench.events();

    bench.fail(Role::Check, Fault::Network);
    assert_eq!(bench.events(), ["ServerHeartbeatFailed"]);
    bench.call(|monitor, now| monitor.request_check(now));
    bench.pass(499);
    assert_eq!(bench.events(), [""; 0]);

    bench.pass(1);
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
}

#[test]
fn a_known_server_that_is_lost_again_later_is_tried_again_at_once_mon_9() {
    let mut bench = streaming();
    bench.fail(Role::Check, Fault::Network);
    bench.greet(Role::Check, &streaming_hello(1));
    bench.pass(500);
    bench.events();

    bench.fail(Role::Check, Fault::Network);

    assert_eq!(bench.events(), ["ServerHeartbeatFailed", "ServerHeartbeatStarted"]);
}

#[test]
fn a_server_that_hangs_up_on_every_awaited_hello_is_connected_to_four_times_a_second_at_most() {
    let mut bench = Bench::new(options(|_| {}));
    let (seconds, most) = (10, 4 * 10 + 1);
    for _ in 0..seconds * 100 {
        while bench.socket(Role::Check).is_some() {
            bench.greet(Role::Check, &streaming_hello(1));
            bench.fail(Role::Check, Fault::Network);
            assert!(bench.closed.len() <= 2 * most, "{:?} after {:?}", bench.closed.last(), bench.now);
        }
        bench.call(|monitor, now| monitor.request_check(now));
        bench.pass(10);
    }

    let connected = bench.closed.iter().filter(|socket| socket.role == Role::Check).count();
    assert!((20..=most).contains(&connected), "{connected} connections in {seconds} seconds");
}

#[test]
fn a_server_that_streams_ten_early_replies_without_news_is_polled() {
    let mut bench = streaming();
    for _ in 0..10 {
        bench.pass(4_999);
        bench.reply(Role::Check, &streaming_hello(1), true);
    }
    bench.events();

    assert!(bench.peers.is_empty(), "the server would go on sending, and nothing is left to be measured");
    assert!(matches!(bench.findings.last(), Some(Finding::Description(_))), "its last reply counts");
    for _ in 0..2 {
        bench.pass(9_999);
        assert_eq!(bench.events(), [""; 0]);
        bench.pass(1);
        assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
        match bench.asked(Role::Check) {
            None => bench.greet(Role::Check, &streaming_hello(2)),
            Some(_) => bench.reply(Role::Check, &streaming_hello(2), false),
        }
        assert_eq!(bench.events(), ["ServerHeartbeatSucceeded"]);
        assert_eq!(bench.asked(Role::Check), None);
    }
}

#[test]
fn a_server_that_ends_its_stream_early_ten_times_is_polled_through_the_same_socket() {
    let mut bench = streaming();
    let socket = bench.socket(Role::Check);
    for _ in 0..10 {
        bench.reply(Role::Check, &streaming_hello(1), false);
    }
    bench.events();

    assert_eq!((bench.asked(Role::Check), bench.socket(Role::Check)), (None, socket));
    bench.pass(10_000);
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
    assert!(!is_asked_to_stream(&bench));
}

#[test]
fn early_replies_count_across_lost_connections() {
    let mut bench = streaming();
    for _ in 0..10 {
        bench.reply(Role::Check, &streaming_hello(1), true);
        if bench.socket(Role::Check).is_some() {
            bench.fail(Role::Check, Fault::Network);
            bench.pass(500);
            bench.greet(Role::Check, &streaming_hello(1));
        }
    }

    assert!(bench.peers.is_empty());
}

#[test]
fn an_election_is_followed_without_a_pause_mon_7() {
    let mut bench = streaming();

    for counter in 2..21 {
        bench.reply(Role::Check, &streaming_hello(counter), true);
    }

    assert!(is_asked_to_stream(&bench));
    assert_eq!(bench.findings.len(), 20);
}

#[test]
fn a_server_that_streams_twenty_replies_with_news_is_polled_twice_a_second_x_153() {
    let mut bench = streaming();
    for counter in 2..22 {
        bench.reply(Role::Check, &streaming_hello(counter), true);
    }
    bench.events();
    assert!(bench.peers.is_empty(), "the server would go on sending, and nothing is left to be measured");

    bench.pass(499);
    assert_eq!(bench.events(), [""; 0]);
    bench.pass(1);
    assert_eq!(bench.events(), ["ServerHeartbeatStarted"]);
    bench.greet(Role::Check, &streaming_hello(22));

    assert_eq!(bench.asked(Role::Check), None, "it is not asked to stream");
    bench.pass(500);
    assert!(bench.asked(Role::Check).is_some() && !is_asked_to_stream(&bench), "it is asked over the same socket");
}

#[test]
fn a_server_with_too_many_news_streams_again_after_a_heartbeat_x_153() {
    let mut bench = streaming();
    for counter in 2..22 {
        bench.reply(Role::Check, &streaming_hello(counter), true);
    }
    bench.pass(500);
    bench.greet(Role::Check, &streaming_hello(22));

    for _ in 0..18 {
        bench.pass(500);
        bench.reply(Role::Check, &streaming_hello(22), false);
        assert_eq!(bench.asked(Role::Check), None);
    }
    bench.pass(500);
    bench.reply(Role::Check, &streaming_hello(22), false);

    assert!(is_asked_to_stream(&bench));
}

#[test]
fn a_server_whose_news_never_end_has_forty_hellos_read_in_a_heartbeat_at_most_x_153() {
    let mut bench = streaming();
    let mut counter = 1;
    for _ in 0..6 * 1_000 {
        // It answers whatever it is asked at once, and streams where it may.
        for _ in 0..100 {
            let Some(socket) = bench.socket(Role::Check) else { break };
            if !bench.peers[&socket].connected {
                bench.connect(Role::Check);
            }
            if bench.asked(Role::Check).is_none() {
                break;
            }
            counter += 1;
            let streams = is_asked_to_stream(&bench);
            bench.reply(Role::Check, &streaming_hello(counter), streams);
        }
        if let Some(socket) = bench.socket(Role::RoundTrip)
            && !bench.peers[&socket].connected
        {
            bench.greet(Role::RoundTrip, &hello());
        }
        bench.pass(10);
    }

    let hellos = bench.findings.len();
    assert!((6 * 38..=6 * 41).contains(&hellos), "{hellos} hellos in six heartbeats");
}

#[test]
fn another_process_of_a_server_that_was_too_fast_streams_again() {
    let mut bench = streaming();
    (0..10).for_each(|_| bench.reply(Role::Check, &streaming_hello(1), true));
    bench.pass(10_000);

    bench.greet(Role::Check, &streaming_hello_of(2, 1));

    assert!(is_asked_to_stream(&bench));
}

#[test]
fn a_forked_process_lets_the_server_stream_again_fork_2() {
    let mut bench = streaming();
    (0..10).for_each(|_| bench.reply(Role::Check, &streaming_hello(1), true));

    bench.call(|monitor, now| monitor.reset_after_fork(now));
    bench.greet(Role::Check, &streaming_hello(1));

    assert!(is_asked_to_stream(&bench));
}

#[test]
fn a_reply_that_announces_more_fails_a_check_that_did_not_allow_it_msg_9() {
    let mut bench = Bench::new(options(|options| options.streams = false));
    bench.connect(Role::Check);

    bench.reply(Role::Check, &hello(), true);

    let [Finding::Failure { fault: Fault::Other, cause }] = bench.findings.as_slice() else {
        panic!("{:?}", bench.findings)
    };
    assert!(cause.to_string().contains("moreToCome"), "{cause}");
    assert!(bench.peers.is_empty());
}

#[test]
fn a_measurement_whose_reply_announces_more_ends_its_socket_msg_9() {
    let mut bench = streaming();
    bench.connect(Role::RoundTrip);
    bench.events();

    bench.reply(Role::RoundTrip, &hello(), true);

    assert_eq!((bench.events().len(), bench.findings.len()), (0, 1));
    assert_eq!(bench.socket(Role::RoundTrip), None);
}
