//! Properties of a monitor that hold for any events in any order.

use crate::monitored::{Bench, hello, options, streaming_hello};
use bson::rawdoc;
use cmap_core::connection::Fault;
use cmap_core::monitor::{HeartbeatEvent, Monitor, Role};
use proptest::prelude::*;

/// An event; one that cannot happen at that moment is left out.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Pass(u64),
    Connect(Role),
    Reply(Role, Answer),
    Fail(Role, bool),
    Garbage(Role),
    Request,
    Cancel,
    MarkUnknown,
    TimeoutTooEarly,
    Close,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Plain,
    Streaming { counter: i64, more_to_come: bool },
    Refusal,
}

fn happening() -> impl Strategy<Value = Happening> {
    let role = || prop_oneof![3 => Just(Role::Check), 1 => Just(Role::RoundTrip)];
    let answer = prop_oneof![
        2 => Just(Answer::Plain),
        4 => (0..9_i64, any::<bool>()).prop_map(|(counter, more_to_come)| Answer::Streaming { counter, more_to_come }),
        1 => Just(Answer::Refusal),
    ];
    prop_oneof![
        6 => prop_oneof![Just(0), 1..600_u64, 600..30_000_u64].prop_map(Happening::Pass),
        6 => role().prop_map(Happening::Connect),
        8 => (role(), answer).prop_map(|(role, answer)| Happening::Reply(role, answer)),
        3 => (role(), any::<bool>()).prop_map(|(role, timeout)| Happening::Fail(role, timeout)),
        1 => role().prop_map(Happening::Garbage),
        4 => Just(Happening::Request),
        2 => Just(Happening::Cancel),
        1 => Just(Happening::MarkUnknown),
        1 => Just(Happening::TimeoutTooEarly),
        1 => prop_oneof![9 => Just(Happening::Request), 1 => Just(Happening::Close)],
    ]
}

/// Makes it happen. The bench itself asserts that there is one socket for a role, that every socket is closed once, that
/// one hello is sent at a time, and that deadlines progress.
fn happen(bench: &mut Bench, happening: Happening) {
    let is_connected = |bench: &Bench, role| {
        bench.socket(role).is_some_and(|socket| bench.peers.get(&socket).is_some_and(|peer| peer.connected))
    };
    match happening {
        Happening::Pass(millis) => bench.pass(millis),
        Happening::Connect(role) if bench.socket(role).is_some() && !is_connected(bench, role) => bench.connect(role),
        Happening::Reply(role, answer) if bench.asked(role).is_some() => match answer {
            Answer::Plain => bench.reply(role, &hello(), false),
            Answer::Refusal => bench.reply(role, &rawdoc! { "ok": 0, "code": 11600 }, false),
            Answer::Streaming { counter, more_to_come } => {
                // No server goes on unasked.
                let more_to_come = more_to_come && bench.asked(role).unwrap().get("maxAwaitTimeMS").unwrap().is_some();
                bench.reply(role, &streaming_hello(counter), more_to_come);
            }
        },
        Happening::Fail(role, timeout) if bench.socket(role).is_some() => {
            bench.fail(role, if timeout { Fault::Timeout } else { Fault::Network });
        }
        Happening::Garbage(role) if is_connected(bench, role) => {
            let socket = bench.socket(role).unwrap();
            bench.call(|monitor, now| monitor.handle_bytes(now, socket, &[0xff; 40]));
        }
        Happening::Request => bench.call(|monitor, now| monitor.request_check(now)),
        Happening::Cancel => bench.call(|monitor, now| monitor.cancel_check(now)),
        Happening::MarkUnknown => bench.monitor.mark_unknown(),
        Happening::TimeoutTooEarly => bench.call(Monitor::handle_timeout),
        Happening::Close => bench.call(|monitor, now| monitor.close(now)),
        Happening::Connect(_) | Happening::Reply(..) | Happening::Fail(..) | Happening::Garbage(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_more_than_ten_early_replies_without_news_are_awaited_in_a_row(
        replies in prop::collection::vec((0..3_i64, any::<bool>(), prop_oneof![4 => Just(0), 1 => Just(6_000_u64)]), 0..60),
    ) {
        let mut bench = Bench::new(options(|_| {}));
        bench.greet(Role::Check, &streaming_hello(0));

        let (mut newest, mut early) = (0, 0);
        for (counter, more_to_come, pause) in replies {
            if bench.socket(Role::RoundTrip).is_some() {
                bench.fail(Role::RoundTrip, Fault::Network);
            }
            bench.pass(pause);
            if bench.asked(Role::Check).is_none() {
                break;
            }
            bench.reply(Role::Check, &streaming_hello(counter), more_to_come);
            early = if counter <= newest && pause == 0 { early + 1 } else { 0 };
            newest = newest.max(counter);
            prop_assert_eq!(bench.asked(Role::Check).is_some(), early < 10, "after {} early replies", early);
        }
    }

    #[test]
    fn heartbeats_are_paired_and_paced_whatever_happens(
        streams in any::<bool>(),
        happenings in prop::collection::vec(happening(), 0..120),
    ) {
        let mut bench = Bench::new(options(|options| options.streams = streams));
        for happening in happenings {
            happen(&mut bench, happening);
        }
        bench.call(|monitor, now| monitor.close(now));

        // Every start has one end before the next start (MON-13), and closing ends everything.
        let (mut started, mut last_end, mut retried, mut last_retry) = (None, None, false, None);
        for (at, event) in &bench.events {
            if let HeartbeatEvent::Started { awaited, .. } = event {
                prop_assert!(started.is_none(), "two checks at once");
                // MON-2, MON-3: checks that are not awaited are half a second apart, but for one retry of a known server.
                if let (Some((end, was_known)), false) = (last_end, *awaited) {
                    let gap = at.saturating_since(end);
                    let is_retry = gap.is_zero() && was_known;
                    prop_assert!(is_retry || gap.as_millis() >= 500, "{gap:?} after the check before");
                    prop_assert!(!(is_retry && retried), "retried twice");
                    if is_retry {
                        let since = last_retry.replace(*at).map(|last| at.saturating_since(last));
                        prop_assert!(since.is_none_or(|since| since.as_millis() >= 500), "retried {since:?} ago");
                    }
                    retried = is_retry;
                }
                started = Some(*awaited);
            } else if let HeartbeatEvent::Succeeded { awaited, .. } = event {
                prop_assert_eq!(started.take(), Some(*awaited));
                (last_end, retried) = (Some((*at, true)), false);
            } else if let HeartbeatEvent::Failed { awaited, .. } = event {
                prop_assert_eq!(started.take(), Some(*awaited));
                last_end = Some((*at, last_end.is_some_and(|(_, known): (_, bool)| known) && !retried));
            } else {
                prop_assert!(false, "a monitor has no event {}", event.name());
            }
        }
        prop_assert!(started.is_none() && bench.peers.is_empty());
        prop_assert_eq!(bench.monitor.poll_timeout(), None);
    }
}
