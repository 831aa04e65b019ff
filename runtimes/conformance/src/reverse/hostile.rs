//! Agents that may not speak for a member, and strangers: what they hear, what the log says, and what they cost.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use cmap_core::reverse::Token;
use cmap_runtime::Listen;
use cmap_runtime::runtime::{Runtime, Target};
use futures_io::AsyncRead;

use super::ping;
use super::scene::{SECRET, Scene, member, pause};
use crate::{Harness, LocalServer, is_virtual, run, told, until};

/// All that an agent hears that may not speak for a member.
const UNAUTHORIZED: &str = "it may not speak for this member";

pub fn a_wrong_token_is_refused_and_the_log_says_why<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let mut config = scene.config(&server);
        config.greeting.token = Some(Token::new("rack-7", b"another secret than the right one").unwrap());
        let agent = scene.agent_with(config);

        agent.ends_with(UNAUTHORIZED).await;
        scene.told.wait_for("does not have the secret of the token \"rack-7\"").await;

        let mut config = scene.config(&server);
        config.greeting.token = Some(Token::new("rack-8", SECRET).unwrap());
        let agent = scene.agent_with(config);
        agent.ends_with(UNAUTHORIZED).await;
        scene.told.wait_for("shows the token \"rack-8\", which is not known here").await;

        let mut config = scene.config(&server);
        config.greeting.token = None;
        let agent = scene.agent_with(config);
        agent.ends_with(UNAUTHORIZED).await;
        scene.told.wait_for("shows no token").await;
        assert_eq!((scene.parked(), server.accepted()), (0, 0));
    });
}

pub fn a_token_is_good_for_its_own_members_only<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let (server, other) = (LocalServer::start(), LocalServer::start());
        let scene = Scene::<H>::of(&[&server]).await;

        let agent = scene.agent(&other);

        agent.ends_with(UNAUTHORIZED).await;
        let log = scene.told.wait_for("is not good for").await;
        assert!(log.contains(&member(&other).to_string()), "{log}");
        assert_eq!(scene.parked(), 0);
    });
}

pub fn a_proof_of_another_connection_proves_nothing<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let mut config = scene.config(&server);
        config.replays = true;

        let agent = scene.agent_with(config);

        agent.ends_with(UNAUTHORIZED).await;
        scene.told.wait_for("does not have the secret").await;
        assert_eq!(scene.parked(), 0);
    });
}

pub fn an_agent_that_parks_and_never_starts_costs_an_attempt_its_time<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let mut config = scene.config(&server);
        config.never_starts = true;
        let agent = scene.agent_with(config);
        until(|| scene.parked() == 4).await;
        let client = scene.client(&server, "connectTimeoutMS=200&serverSelectionTimeoutMS=900").await;

        let error = told(&client.check_out().await.unwrap_err());

        assert!(error.contains("has not connected to it within connectTimeoutMS"), "{error}");
        agent.ends_with("the application hung up").await;
        assert_eq!(server.accepted(), 0);
    });
}

pub fn a_certificate_for_another_host_is_refused<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::that_trusts_certificates().await;

        let agent = scene.agent_with(scene.config_with_certificate(&server, &["db2.example"]));

        agent.ends_with(UNAUTHORIZED).await;
        scene.told.wait_for("the agent's certificate does not name the host of 127.0.0.1").await;
        assert_eq!(scene.parked(), 0);
    });
}

pub fn who_speaks_another_protocol_is_told_by_tls<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let mut config = scene.config(&server);
        config.tls = config.tls.for_protocol(b"http/1.1");

        let agent = scene.agent_with(config);

        agent.next_ending().await;
        scene.told.wait_for("TLS with this client is not possible").await;
        assert_eq!(scene.parked(), 0);
    });
}

pub fn who_fails_again_and_again_is_turned_away_before_the_handshake<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let mut config = scene.config(&server);
        config.greeting.token = Some(Token::new("rack-7", b"another secret than the right one").unwrap());

        const TURNED_AWAY: &str = "have failed within a minute";
        let mut attempts = 0;
        while scene.told.count(TURNED_AWAY) == 0 {
            scene.agent_with(config.clone()).next_ending().await;
            attempts += 1;
        }

        // The last of them is turned away. An agent may hear of its refusal, and come again, before it is counted.
        assert!((21..=23).contains(&attempts), "{attempts} attempts");
        let told = scene.told.count("does not have the secret");
        assert!((1..=20).contains(&told), "strangers do not fill the log: {told}");
    });
}

/// Sockets that say nothing and hang up, as those of health checks do, are not held against an agent of their address.
pub fn who_hangs_up_before_a_hello_keeps_out_no_agent_of_that_address<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let agent = scene.agent(&server);
        until(|| scene.parked() == 4).await;
        let runtime = H::Runtime::current().unwrap();

        for _ in 0..300 {
            drop(runtime.connect(Target::Tcp(scene.listener.local_address())).await.unwrap());
            until(|| scene.listener.greeting() < 64).await;
        }
        until(|| scene.listener.greeting() == 0).await;
        agent.kill();
        until(|| scene.parked() == 0).await;

        let _agent = scene.agent(&server);
        until(|| scene.parked() == 4).await;
        assert_eq!(scene.told.count("have failed within a minute"), 0);
    });
}

/// Of ten thousand sockets of one address that say nothing, at most 128 are held, each for ten seconds; an agent that is new there is
/// let in when they are gone.
pub fn ten_thousand_half_open_agents_cost_a_bounded_number_of_sockets<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let members = [member(&server)];
        let scene = Scene::<H>::with(|options| {
            options.tokens.add(Token::new("rack-7", SECRET).unwrap(), members);
            // The good agent is at the same address.
            options.limits.max_failures = u32::MAX;
        })
        .await;
        let runtime = H::Runtime::current().unwrap();
        let mut held = Vec::new();
        let began = runtime.now();

        for _ in 0..10_000 {
            // After ten seconds those that are held give way; on a busy machine fewer come until then.
            if !is_virtual::<H>() && runtime.now() > began + Duration::from_secs(8) {
                break;
            }
            let mut stranger = runtime.connect(Target::Tcp(scene.listener.local_address())).await.unwrap();
            if held.len() < 128 {
                held.push(stranger);
                let count = held.len();
                until(|| scene.listener.greeting() as usize == count).await;
                continue;
            }
            let read = std::future::poll_fn(|cx| Pin::new(&mut stranger).poll_read(cx, &mut [0])).await;
            assert!(matches!(read, Ok(0) | Err(_)), "it is closed at once");
            assert!(scene.listener.greeting() <= 128);
        }

        let told = scene.told.count("is turned away");
        assert!((1..1000).contains(&told), "the log is not filled: {told}");
        pause::<H>(Duration::from_secs(11)).await;
        let _agent = scene.agent(&server);
        until(|| scene.parked() == 4).await;
        drop(held);
    });
}

/// Sockets that say nothing give way to newer ones where an agent has parked from their address: that is let in at once, and those who
/// are connected do not notice.
pub fn who_says_nothing_keeps_out_no_agent_of_that_address<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let agent = scene.agent(&server);
        let client = scene.client(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        until(|| scene.parked() == 4).await;
        let runtime = H::Runtime::current().unwrap();
        let mut held = VecDeque::new();

        for _ in 0..300 {
            held.push_back(runtime.connect(Target::Tcp(scene.listener.local_address())).await.unwrap());
            if held.len() > 128 {
                let mut oldest = held.pop_front().unwrap();
                let read = std::future::poll_fn(|cx| Pin::new(&mut oldest).poll_read(cx, &mut [0])).await;
                assert!(matches!(read, Ok(0) | Err(_)), "it gives way");
            }
            assert!(scene.listener.greeting() <= 128);
        }

        ping(&mut connection).await;
        agent.kill();
        until(|| scene.parked() == 0).await;
        let _agent = scene.agent(&server);
        until(|| scene.parked() == 4).await;
        assert_eq!(scene.told.count("is turned away"), 0);
        drop(held);
    });
}
