//! Connections that the database's side opens: a listener, agents that dial out to it, and clients between them.

mod agent;
pub mod behind;
mod front;
mod hostile;
mod scene;

use std::time::Duration;

use bson::rawdoc;
use cmap_core::reverse::{BootId, Token};
use cmap_runtime::reverse::{BindError, PemSource, ReverseOptions};
use cmap_runtime::{Client, ClientError, Connection, Listen, ReverseListener};

pub use self::front::Front;
pub use self::hostile::*;
use self::scene::{Scene, member};
use super::{Harness, Hosts, LocalServer, Setup, assert_nothing_lost, options, run, told, until};

async fn ping<R: cmap_runtime::Runtime>(connection: &mut Connection<R>) {
    connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
}

pub fn a_client_takes_its_connections_from_an_agent<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let _agent = scene.agent(&server);
        let client = scene.client(&server, "").await;

        for _ in 0..3 {
            ping(&mut client.check_out().await.unwrap()).await;
        }

        assert_eq!(client.stats().created, 1);
        until(|| scene.parked() == 4).await;
        assert_nothing_lost(&client);
    });
}

pub fn the_servers_own_tls_and_login_hold_from_end_to_end<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { authorization: true, tls: Some(Hosts::Local), ..Setup::default() });
        let scene = Scene::<H>::of(&[&server]).await;
        let _agent = scene.agent(&server);
        let query = format!("tls=true&tlsCAFile={}", server.authority().display());
        let (options, _) = cmap_core::options::ClientOptions::parse(&server.uri_as("app:secret", &query)).unwrap();
        let client: Client<H::Runtime> =
            Client::builder(options).reverse(scene.listener.clone()).build().await.unwrap();

        let mut connection = client.check_out().await.unwrap();
        let large = "x".repeat(3 << 20);
        connection
            .run_command("shop", rawdoc! { "insert": "a", "documents": [{ "_id": 1, "text": large.as_str() }] })
            .await
            .unwrap();
        let reply = connection.run_command("shop", rawdoc! { "find": "a" }).await.unwrap();

        assert!(reply.as_bytes().len() > large.len());
        drop(connection);
        ping(&mut client.check_out().await.unwrap()).await;
        assert_eq!(client.stats().created, 1, "it was looked at, and is as good as before");
    });
}

pub fn a_certificate_that_names_the_member_lets_its_agent_in<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::that_trusts_certificates().await;
        let _agent = scene.agent_with(scene.config_with_certificate(&server, &["127.0.0.1"]));
        let client = scene.client(&server, "").await;

        ping(&mut client.check_out().await.unwrap()).await;
    });
}

pub fn a_client_waits_for_an_agent_that_comes_late<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let client = scene.client(&server, "").await;
        let mut waiting = Box::pin(client.check_out());
        assert!(super::poll_once(&mut waiting).await.is_none());
        scene::pause::<H>(Duration::from_millis(300)).await;

        let _agent = scene.agent(&server);

        ping(&mut waiting.await.unwrap()).await;
    });
}

pub fn without_an_agent_a_check_out_fails_in_time_and_names_the_member<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let (server, other) = (LocalServer::start(), LocalServer::start());
        let scene = Scene::<H>::of(&[&server, &other]).await;
        let _agent = scene.agent(&other);
        until(|| scene.parked() == 4).await;
        let client = scene.client(&server, "connectTimeoutMS=200&serverSelectionTimeoutMS=900").await;

        let error = told(&client.check_out().await.unwrap_err());

        assert!(error.contains(&format!("no agent of {} has a free socket here", member(&server))), "{error}");
        assert!(error.contains(&format!("agents speak for {}", member(&other))), "{error}");
        assert_eq!(server.accepted(), 0);
    });
}

pub fn more_sockets_are_demanded_than_are_parked<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let members = [member(&server)];
        let scene = Scene::<H>::with(|options| {
            let token = Token::new("rack-7", scene::SECRET).unwrap();
            options.tokens.add(token, members);
            options.wanted = 1;
        })
        .await;
        let client = scene.client(&server, "maxPoolSize=20&maxConnecting=20").await;
        let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(client.check_out())).collect();
        let agent = scene.agent(&server);

        let mut connections = Vec::new();
        // All of them wait before the first is served.
        for check_out in &mut waiting {
            assert!(super::poll_once(check_out).await.is_none());
        }
        for check_out in waiting {
            connections.push(check_out.await.unwrap());
        }

        assert!(agent.demanded() > 0, "one at a time is not enough");
        assert_eq!(client.stats().counts.in_use, 20);
    });
}

pub fn a_member_that_its_agent_cannot_reach_is_said_so<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let scene = Scene::<H>::of(&[&server]).await;
        let _agent = scene.agent(&server);
        let client = scene.client(&server, "serverSelectionTimeoutMS=700").await;

        // The agent may take its time to say so.
        while !told(&client.check_out().await.unwrap_err()).contains("the agent cannot reach its member (connect)") {}

        server.restart();
        let client = scene.client(&server, "").await;
        ping(&mut client.check_out().await.unwrap()).await;
    });
}

pub fn an_agent_that_is_gone_costs_its_connections_and_its_successor_serves<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let agent = scene.agent(&server);
        let client = scene.client(&server, "heartbeatFrequencyMS=500").await;
        let mut connection = client.check_out().await.unwrap();
        ping(&mut connection).await;

        agent.kill();
        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        assert!(connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_err(), "{error}");
        drop(connection);
        let mut config = scene.config(&server);
        config.greeting.boot = BootId { started: 2, random: 1 };
        let _successor = scene.agent_with(config);

        ping(&mut client.check_out().await.unwrap()).await;
        assert_nothing_lost(&client);
    });
}

pub fn a_later_run_of_an_agent_takes_the_place_of_an_earlier_one<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let earlier = scene.agent(&server);
        until(|| scene.parked() == 4).await;
        let mut config = scene.config(&server);
        config.greeting.boot = BootId { started: 2, random: 1 };
        let _later = scene.agent_with(config);

        earlier.ends_with("going away").await;
        until(|| scene.parked() == 4).await;
        let again = scene.agent(&server);

        again.ends_with("a later run of the agent is connected").await;
    });
}

pub fn a_closed_listener_ends_waits_and_parked_sockets<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let (server, other) = (LocalServer::start(), LocalServer::start());
        let scene = Scene::<H>::of(&[&server, &other]).await;
        let agent = scene.agent(&server);
        let client = scene.client(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let lonely = scene.client(&other, "serverSelectionTimeoutMS=700").await;
        let mut waiting = Box::pin(lonely.check_out());
        assert!(super::poll_once(&mut waiting).await.is_none());

        scene.listener.close();

        agent.ends_with("going away").await;
        let error = told(&waiting.await.unwrap_err());
        assert!(error.contains("the listener for agents was closed"), "{error}");
        ping(&mut connection).await;
        until(|| scene.parked() == 0).await;
    });
}

pub fn a_client_that_gives_up_leaves_no_socket_behind<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let agent = scene.agent(&server);
        let client = scene.client(&server, "maxPoolSize=3").await;
        ping(&mut client.check_out().await.unwrap()).await;

        assert!(client.close(Duration::from_secs(5)).await.is_ok());
        drop(client);

        until(|| server.open() == 0).await;
        until(|| scene.parked() == 4).await;
        drop(agent);
    });
}

pub fn a_listener_that_cannot_be_made_says_why<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let taken = scene.listener.local_address();
        let mut without_file = ReverseOptions::new(PemSource::File("/nowhere/listener.pem".into()));

        let nobody = ReverseListener::<H::Runtime>::bind(taken, without_file.clone()).await;
        without_file.tokens.add(Token::new("rack-7", scene::SECRET).unwrap(), [member(&server)]);
        let no_file = ReverseListener::<H::Runtime>::bind(taken, without_file).await;
        let no_port = ReverseListener::<H::Runtime>::bind(taken, scene.options(&server)).await;

        assert!(matches!(nobody, Err(BindError::NobodyIsLetIn)), "{nobody:?}");
        let no_file = told(&no_file.unwrap_err());
        assert!(no_file.contains("certificate_key (/nowhere/listener.pem) cannot be read"), "{no_file}");
        assert!(matches!(no_port, Err(BindError::Listen { address, .. }) if address == taken), "{no_port:?}");
    });
}

pub fn a_unix_socket_has_no_agent<H: Harness<Runtime: Listen>>() {
    run::<H>(async {
        let server = LocalServer::start();
        let scene = Scene::<H>::of(&[&server]).await;
        let mut options = options(&server, "");
        options.hosts = vec!["%2Ftmp%2Fmongodb.sock".parse().unwrap()];

        let refused = Client::<H::Runtime>::builder(options).reverse(scene.listener.clone()).build().await;

        assert!(matches!(refused, Err(ClientError::Unsupported { .. })));
    });
}
