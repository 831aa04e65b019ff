//! A server sends more than it was asked for: the extra bytes never answer a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::connection::CommandError as NotSent;
use cmap_core::options::ClientOptions;
use cmap_core::pool::Purpose;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Client, CommandErrorKind, Connection, Pool};

use super::ground::{self, Bell};
use super::scripted_server::{ScriptedServer, streaming_hello};
use super::{ClientOf, Harness, Hosts, LocalServer, Setup, assert_nothing_lost, client, run, yield_now};

pub fn a_doubled_reply_closes_its_connection_at_check_in<H: Harness>() {
    run::<H>(async { closes_its_connection(&client::<H>(&LocalServer::start(), "").await, "answerTwice").await });
}

pub fn a_doubled_reply_under_tls_closes_its_connection_at_check_in<H: Harness>() {
    run::<H>(async {
        let server = tls_server();
        closes_its_connection(&tls_client::<H>(&server).await, "answerTwice").await;
    });
}

pub fn a_reply_sent_ahead_answers_no_command<H: Harness>() {
    run::<H>(async {
        let server = server_of_whole_writes();
        closes_its_connection(&client::<H>(&server, "").await, "answerAhead").await;
    });
}

pub fn a_reply_sent_ahead_under_tls_answers_no_command<H: Harness>() {
    run::<H>(async {
        let server = tls_server();
        closes_its_connection(&tls_client::<H>(&server).await, "answerAhead").await;
    });
}

pub fn a_reply_sent_ahead_answers_no_command_on_a_pinned_connection<H: Harness>() {
    run::<H>(async {
        let server = server_of_whole_writes();
        let client = client::<H>(&server, "").await;
        let mut pinned = client.check_out().await.unwrap().pin(Purpose::Cursor);

        assert_eq!(command(&mut pinned, "answerAhead").await, rawdoc! { "ok": 1.0 });

        assert_refuses_commands(&mut pinned).await;
        drop(pinned.unpin());
        assert_replaced(&client).await;
    });
}

pub fn half_a_reply_sent_ahead_closes_its_connection_at_check_in<H: Harness>() {
    run::<H>(async {
        let server = server_of_whole_writes();
        closes_its_connection(&client::<H>(&server, "").await, "answerHalfAhead").await;
    });
}

pub fn what_comes_while_a_connection_is_idle_closes_it<H: Harness>() {
    run::<H>(async {
        let (is_idle, came_back) = (Arc::new(AtomicBool::new(false)), Arc::new(Bell::default()));
        let (seen, heard) = (Arc::clone(&is_idle), Arc::clone(&came_back));
        let server = ScriptedServer::start(move |before, mut client| {
            let (is_idle, came_back) = (Arc::clone(&seen), Arc::clone(&heard));
            async move {
                let hello = client.next_request().await?;
                client.answer(hello, &streaming_hello(1)).await?;
                if before == 0 {
                    came_back.wait_until(|| is_idle.load(Ordering::SeqCst)).await;
                    client.answer(hello, &rawdoc! { "ok": 1 }).await?;
                }
                client.wait_for_the_end().await
            }
        });
        let mut options = ClientOptions::parse(&server.uri("")).unwrap().0;
        options.pool.check_after_idle = Some(Duration::ZERO);
        let pool = Pool::<H::Runtime>::with_options(options).await.unwrap();
        pool.ready();

        drop(pool.check_out().await.unwrap());
        is_idle.store(true, Ordering::SeqCst);
        came_back.ring();

        // It takes a moment until it has come.
        while pool.check_out().await.unwrap().id().get() == 1 {
            yield_now().await;
        }
        assert_eq!((pool.stats().closed.error, pool.stats().counts.available), (1, 1));
    });
}

/// The requested reply is good, the connection takes no further command, and the next user gets another one.
async fn closes_its_connection<R: Runtime>(client: &Client<R>, name: &str) {
    let mut connection = client.check_out().await.unwrap();

    assert_eq!(command(&mut connection, name).await, rawdoc! { "ok": 1.0 });

    assert_refuses_commands(&mut connection).await;
    drop(connection);
    assert_replaced(client).await;
}

async fn assert_refuses_commands<R: Runtime>(connection: &mut Connection<R>) {
    let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();

    assert!(matches!(error.kind, CommandErrorKind::NotSent(NotSent::Errored)), "{error}");
}

/// The next user gets another connection, and the answer to its own command.
async fn assert_replaced<R: Runtime>(client: &Client<R>) {
    let mut connection = client.check_out().await.unwrap();

    assert_eq!(connection.id().get(), 2);
    let hello = command(&mut connection, "hello").await;
    assert!(hello.get("isWritablePrimary").unwrap().is_some(), "{hello:?}");
    drop(connection);
    assert_eq!((client.stats().closed.error, client.stats().counts.available), (1, 1));
    assert_nothing_lost(client);
}

async fn command<R: Runtime>(connection: &mut Connection<R>, name: &str) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(bson::raw::CString::try_from(name).unwrap(), 1);
    connection.run_command("admin", command).await.unwrap().into_document()
}

/// What a server sends ahead comes together with the reply. What comes later, when the next command was sent, cannot be
/// told from its answer.
fn server_of_whole_writes() -> LocalServer {
    ground::current().keep_writes_whole();
    LocalServer::start()
}

fn tls_server() -> LocalServer {
    LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() })
}

async fn tls_client<H: Harness>(server: &LocalServer) -> ClientOf<H> {
    client::<H>(server, &format!("tls=true&tlsCAFile={}", server.authority().display())).await
}
