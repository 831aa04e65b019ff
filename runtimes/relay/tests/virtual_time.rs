//! The relay in virtual time, at an application that the tests play themselves.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

mod application;

use std::time::Duration;

use cmap_core::reverse::{ALPN, Ending, Refusal, StartPhase};
use cmap_relay::{Drained, Limits, Relay};
use cmap_sim::{Reachability, for_seeds};

use crate::application::{MEMBER, World, finish, read, write};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_agent_proves_for_which_member_it_speaks_x_118() {
    let world = World::new(1);
    world.sim.run(async {
        let _relay = world.relay();

        let socket = world.greeted().await;

        assert_eq!(socket.hello.member, MEMBER.parse().unwrap());
        assert!(socket.is_proven);
    });
}

#[test]
fn as_many_are_parked_as_the_application_wants_and_the_member_is_left_alone_x_125() {
    for_seeds(0..5, |seed| {
        let world = World::new(seed);
        world.sim.run(async {
            let relay = world.relay();
            let mut sockets = Vec::new();
            for _ in 0..3 {
                sockets.push(world.parked(3).await);
            }
            world.sim.sleep(SECOND).await;

            let [link] = &relay.status()[..] else { panic!("one member at one application") };
            assert_eq!((link.sockets.parked, link.sockets.dialling), (3, 0));
            let nobody = world.sim.runtime().sleep(SECOND);
            assert!(first(world.member.accept(), nobody).await.is_none(), "the member was connected");
        });
    });
}

#[test]
fn a_started_socket_is_a_connection_and_another_one_takes_its_place_x_125() {
    for_seeds(0..5, |seed| {
        let world = World::new(seed);
        world.sim.run(async {
            let _relay = world.relay();
            let socket = world.parked(1).await;

            let mut connection = socket.start().await.unwrap();
            let mut member = world.member_connection().await;
            write(&mut connection, b"question").await.unwrap();
            assert_eq!(read_all(&mut member, 8).await, b"question");
            write(&mut member, b"answer").await.unwrap();

            assert_eq!(read_all(&mut connection, 6).await, b"answer");
            let _successor = world.parked(1).await;
        });
    });
}

#[test]
fn demanded_sockets_come_beside_the_wanted_ones_x_125() {
    let world = World::new(1);
    world.sim.run(async {
        let relay = world.relay();
        let mut socket = world.parked(1).await;

        socket.demand(5).await;
        let mut demanded = Vec::new();
        for _ in 0..5 {
            demanded.push(world.parked(1).await);
        }

        world.sim.sleep(SECOND).await;
        assert_eq!(relay.status()[0].sockets.parked, 6);
    });
}

#[test]
fn a_member_that_is_down_fails_the_start_with_its_phase_x_125() {
    let world = World::new(1);
    world.member.close();
    world.sim.run(async {
        let _relay = world.relay();
        let socket = world.parked(1).await;

        let Err(Ending::StartFailed(failure)) = socket.start().await else { panic!("the start did not fail") };

        assert_eq!(failure.phase, StartPhase::Connect);
        assert!(failure.error.contains("connection refused"), "{}", failure.error);
    });
}

#[test]
fn a_member_that_does_not_answer_fails_the_start_within_its_time_x_125() {
    let world = World::new(1);
    world.member.set_reachability(Reachability::Silent);
    world.sim.run(async {
        let _relay = world.relay();
        let socket = world.parked(1).await;
        let start = world.sim.elapsed();

        let Err(Ending::StartFailed(failure)) = socket.start().await else { panic!("the start did not fail") };

        assert!(failure.error.contains("no answer in time"), "{}", failure.error);
        let took = world.sim.elapsed() - start;
        assert!(took >= 5 * SECOND && took < 6 * SECOND, "{took:?}");
    });
}

#[test]
fn an_address_that_does_not_answer_leaves_time_for_the_next_x_125() {
    let world = World::new(1);
    let dead = world.sim.listen("dead.example", 27017);
    dead.set_reachability(Reachability::Silent);
    let two = world.sim.server("two.example");
    two.resolve_to(Ok(vec![dead.address().ip(), world.member.address().ip()]), None);
    let mut settings = world.settings(Limits::default());
    settings.members[0].connect = "two.example:27017".parse().unwrap();
    world.sim.run(async {
        let _relay = Relay::start(world.sim.runtime().clone(), &settings).unwrap();
        let socket = world.parked(1).await;

        let mut connection = socket.start().await.unwrap();
        let mut member = world.member_connection().await;

        write(&mut connection, b"question").await.unwrap();
        assert_eq!(read_all(&mut member, 8).await, b"question");
    });
}

#[test]
fn the_address_that_worked_last_is_tried_first_x_125() {
    let world = World::new(1);
    let dead = world.sim.listen("dead.example", 27017);
    dead.set_reachability(Reachability::Silent);
    let two = world.sim.server("two.example");
    two.resolve_to(Ok(vec![dead.address().ip(), world.member.address().ip()]), None);
    let mut settings = world.settings(Limits::default());
    settings.members[0].connect = "two.example:27017".parse().unwrap();
    world.sim.run(async {
        let _relay = Relay::start(world.sim.runtime().clone(), &settings).unwrap();
        let _first = world.parked(1).await.start().await.unwrap();
        let _member = world.member_connection().await;
        let second = world.parked(1).await;
        let start = world.sim.elapsed();

        second.start().await.unwrap();

        assert!(world.sim.elapsed() - start < SECOND / 4, "it does not wait for the dead one");
    });
}

#[test]
fn a_refused_agent_stays_away_for_as_long_as_it_is_told_x_126() {
    for_seeds(0..5, |seed| {
        let world = World::new(seed);
        world.sim.run(async {
            let _relay = world.relay();

            world.greeted().await.refuse(Refusal::Unauthorized, 30 * SECOND).await;
            let start = world.sim.elapsed();
            world.greeted().await;

            let away = world.sim.elapsed() - start;
            assert!(away >= 30 * SECOND && away < 34 * SECOND, "{away:?}");
        });
    });
}

#[test]
fn an_application_that_starts_and_hangs_up_is_dialled_after_pauses_x_126() {
    for hangs_up_before_started in [true, false] {
        let world = World::new(1);
        world.sim.run(async {
            let _relay = world.relay();
            let mut starts = 0;

            let start_and_hang_up = async {
                loop {
                    let socket = world.parked(1).await;
                    starts += 1;
                    if hangs_up_before_started {
                        socket.say_start().await;
                    } else {
                        drop(socket.start().await);
                    }
                }
            };
            let nothing: Option<()> = first(start_and_hang_up, world.sim.runtime().sleep(60 * SECOND)).await;

            assert_eq!(nothing, None);
            assert!((8..=40).contains(&starts), "{starts} starts in a minute");
        });
    }
}

#[test]
fn short_connections_that_the_member_answers_are_not_paused_x_126() {
    let world = World::new(1);
    world.sim.run(async {
        let _relay = world.relay();
        let start = world.sim.elapsed();

        for _ in 0..50 {
            let mut connection = world.parked(1).await.start().await.unwrap();
            let mut member = world.member_connection().await;
            write(&mut member, b"answer").await.unwrap();
            assert_eq!(read_all(&mut connection, 6).await, b"answer");
        }

        assert!(world.sim.elapsed() - start < 5 * SECOND);
    });
}

#[test]
fn a_member_that_hangs_up_at_once_does_not_speak_against_its_application_x_126() {
    let world = World::new(1);
    world.sim.run(async {
        let _relay = world.relay();
        let start = world.sim.elapsed();

        for _ in 0..50 {
            let mut connection = world.parked(1).await.start().await.unwrap();
            drop(world.member_connection().await);
            assert_eq!(read_to_end(&mut connection).await, b"");
        }

        assert!(world.sim.elapsed() - start < 5 * SECOND);
    });
}

#[test]
fn an_agent_that_is_told_to_go_away_dials_again_x_126() {
    let world = World::new(1);
    world.sim.run(async {
        let _relay = world.relay();

        world.parked(1).await.leave().await;
        let start = world.sim.elapsed();
        world.parked(1).await;

        assert!(world.sim.elapsed() - start < SECOND);
    });
}

#[test]
fn an_application_that_is_away_for_long_is_not_stormed_and_found_soon_x_126() {
    let world = World::new(1);
    world.application.set_reachability(Reachability::Refuses);
    world.sim.run(async {
        let _relay = world.relay();

        world.sim.sleep(600 * SECOND).await;
        world.application.set_reachability(Reachability::Up);
        let start = world.sim.elapsed();
        world.parked(1).await;

        assert!(world.sim.elapsed() - start <= 10 * SECOND);
    });
}

#[test]
fn parked_sockets_outlive_hours_by_pings_and_are_renewed_x_119_x_128() {
    let world = World::new(1);
    world.sim.run(async {
        let _relay = world.relay();
        let old = world.parked(1).await;
        let start = world.sim.elapsed();

        let ended = async { (old.ending().await, world.sim.elapsed()) };
        let renewed = async { (world.parked(1).await, world.sim.elapsed()) };
        let ((ending, ended_at), (_successor, parked_at)) = both(ended, renewed).await;

        assert_eq!(ending, Ending::PeerLeaves);
        assert!(parked_at <= ended_at, "the successor comes first");
        let age = ended_at - start;
        assert!(age > 25 * 60 * SECOND && age < 31 * 60 * SECOND, "{age:?}");
    });
}

#[test]
fn everything_arrives_both_ways_and_each_end_is_passed_on_by_itself_x_127() {
    for_seeds(0..5, |seed| {
        let world = World::new(seed);
        world.sim.run(async {
            let _relay = world.relay();
            let socket = world.parked(1).await;
            let mut connection = socket.start().await.unwrap();
            let mut member = world.member_connection().await;
            let (question, answer) = (pattern(1_000_000, 3), pattern(3_000_000, 7));

            // The application has ended its side before the member says a word.
            let ask = async {
                write(&mut connection, &question).await.unwrap();
                finish(&mut connection).await;
                read_to_end(&mut connection).await
            };
            let reply = async {
                let asked = read_to_end(&mut member).await;
                write(&mut member, &answer).await.unwrap();
                finish(&mut member).await;
                asked
            };
            let (answered, asked) = both(ask, reply).await;

            assert!(asked == question, "{} of {} bytes", asked.len(), question.len());
            assert!(answered == answer, "{} of {} bytes", answered.len(), answer.len());
        });
    });
}

#[test]
fn a_side_that_does_not_read_holds_up_the_other_x_127() {
    let world = World::new(1);
    world.sim.run(async {
        let _relay = world.relay();
        let socket = world.parked(1).await;
        let _connection = socket.start().await.unwrap();
        let mut member = world.member_connection().await;
        let bytes = vec![0; 1024];
        let mut sent = 0;

        // Buffers of the network: 256 KiB at each of two legs.
        let blocked = async {
            while sent < 10_000_000 {
                write(&mut member, &bytes).await.unwrap();
                sent += bytes.len();
            }
        };
        let in_time = first(blocked, world.sim.runtime().sleep(60 * SECOND)).await;

        assert!(in_time.is_none(), "all bytes were taken");
        assert!(sent > 256 * 1024 && sent < 1024 * 1024, "{sent} bytes were taken");
    });
}

#[test]
fn a_drained_relay_lets_parked_sockets_go_and_connections_end_x_129() {
    for_seeds(0..5, |seed| {
        let world = World::new(seed);
        world.sim.run(async {
            let relay = world.relay();
            let mut connection = world.parked(1).await.start().await.unwrap();
            let mut member = world.member_connection().await;
            let parked = world.parked(1).await;

            let use_it = async {
                assert_eq!(parked.ending().await, Ending::PeerLeaves);
                world.sim.sleep(10 * SECOND).await;
                write(&mut connection, b"last").await.unwrap();
                assert_eq!(read_all(&mut member, 4).await, b"last");
                drop((connection, member));
            };
            let (drained, ()) = both(relay.drain(), use_it).await;

            assert_eq!(drained, Drained::Whole);
        });
    });
}

#[test]
fn connections_are_cut_when_the_drain_timeout_is_up_x_129() {
    let world = World::new(1);
    world.sim.run(async {
        let relay = world.relay();
        let mut connection = world.parked(1).await.start().await.unwrap();
        let _member = world.member_connection().await;
        let start = world.sim.elapsed();

        let drained = relay.drain().await;

        assert_eq!(drained, Drained::Cut(1));
        assert_eq!(world.sim.elapsed() - start, 30 * SECOND);
        // The end of TLS was not said, so that nobody takes it for the member's.
        read(&mut connection).await.unwrap_err();
    });
}

#[test]
fn nothing_is_left_of_a_relay_that_is_dropped() {
    let world = World::new(1);
    let before = world.sim.tasks();
    world.sim.run(async {
        let relay = world.relay();
        let _used = world.parked(2).await.start().await.unwrap();
        let _parked = world.parked(2).await;

        drop(relay);
        world.sim.sleep(SECOND).await;
    });

    assert_eq!(world.sim.tasks(), before);
}

#[test]
fn an_agent_does_not_speak_to_an_application_with_another_certificate() {
    let (world, other) = (World::new(1), World::new(2));
    world.sim.run(async {
        let relay = Relay::start(world.sim.runtime().clone(), &other.settings(Limits::default())).unwrap();

        assert_eq!(world.first_words().await, b"");
        assert_eq!(relay.status()[0].sockets.parked, 0);
    });
}

#[test]
fn an_agent_does_not_greet_under_another_protocol_or_an_old_tls() {
    let worlds = [
        World::with_tls(1, rustls::ALL_VERSIONS, &[]),
        World::with_tls(1, rustls::ALL_VERSIONS, &[b"http/1.1"]),
        World::with_tls(1, &[&rustls::version::TLS12], &[ALPN]),
    ];
    for world in worlds {
        world.sim.run(async {
            let _relay = world.relay();

            assert_eq!(world.first_words().await, b"");
        });
    }
}

/// The output of `future`, unless `other` ends before.
async fn first<T>(future: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut future, mut other) = (std::pin::pin!(future), std::pin::pin!(other));
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => other.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// The outputs of both.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(|cx| {
        if a.is_none()
            && let std::task::Poll::Ready(output) = one.as_mut().poll(cx)
        {
            a = Some(output);
        }
        if b.is_none()
            && let std::task::Poll::Ready(output) = other.as_mut().poll(cx)
        {
            b = Some(output);
        }
        match (a.take(), b.take()) {
            (Some(one), Some(other)) => std::task::Poll::Ready((one, other)),
            (one, other) => {
                (a, b) = (one, other);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

async fn read_all(stream: &mut (impl futures_io::AsyncRead + Unpin), count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        let some = read(stream).await.unwrap();
        assert!(!some.is_empty(), "the end comes after {} bytes", all.len());
        all.extend(some);
    }
    all
}

async fn read_to_end(stream: &mut (impl futures_io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let some = read(stream).await.unwrap();
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

fn pattern(length: usize, step: u8) -> Vec<u8> {
    std::iter::successors(Some(0_u8), |byte| Some(byte.wrapping_mul(5).wrapping_add(step))).take(length).collect()
}
