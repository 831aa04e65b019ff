//! What a client's task does without a server upstream.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, rawdoc};
use cmap_core::topology::ServerSelector;
use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::config;
use crate::protocol::{Class, Route};
use crate::users::canonical;

/// A client of a hub that has an identity `writer`, and no server upstream.
async fn client() -> Client<DuplexStream> {
    client_at(duplex(1).0).await
}

/// A client whose connection ends here.
async fn client_at(stream: DuplexStream) -> Client<DuplexStream> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cmap-hub.toml");
    let text = "upstream.uri = 'mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100'\nupstream.patience-ms = 100\n\
                listen = [{ address = '127.0.0.1:0' }]\n\
                [upstream.identity.writer]\nusername = 'writer'\npassword-file = 'password'\n";
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("password"), "secret").unwrap();
    let shared = Arc::new(Shared::new(config::read(&path).unwrap()).await.unwrap());
    let entrance = shared.enter("127.0.0.1".into()).ok().unwrap();
    Client::new(stream, None, shared, entrance)
}

fn message(command: &RawDocument) -> Vec<u8> {
    let mut frame = Vec::new();
    MessageWriter::begin(&mut frame, MessageIds::request(1), Flags::NONE, command, &[], &Limits::DEFAULT)
        .unwrap()
        .finish();
    frame
}

/// An insert that its driver may repeat, of a user who is `writer` upstream.
fn insert() -> Forward {
    let lsid = rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let command = rawdoc! { "insert": "c", "documents": [{}], "lsid": lsid, "txnNumber": 1_i64, "$db": "test" };
    let request = Request::read(&message(&command), &Limits::DEFAULT, cmap_core::time::Instant::ORIGIN).ok().unwrap();
    Forward {
        request: Arc::new(request),
        route: Route::Select(ServerSelector::Writable),
        class: Class::Ordinary,
        body: None,
        upstream: Some("writer".into()),
        session_ends: false,
    }
}

#[tokio::test]
async fn a_command_whose_identity_a_reload_has_taken_away_is_refused_x_133() {
    let mut client = client().await;
    client.run(insert());
    assert!(client.last.take().is_some_and(|owner| owner.identity.is_some()), "it runs as the identity");

    client.shared.upstream.retain_identities(|_| false);
    client.run(insert());

    assert!(client.last.is_none(), "it runs as nobody");
    let outcome = client.running.take().unwrap().work.await;
    assert!(!outcome.ok && outcome.server.is_none());
    let message = outcome.reply.get_str("errmsg").unwrap();
    assert!(message.starts_with("a reload has taken the user's identity upstream away"), "{message}");
    let labels = outcome.reply.get_array("errorLabels").unwrap();
    let labels: Vec<_> = labels.into_iter().map(|label| label.unwrap().as_str().unwrap()).collect();
    assert_eq!(labels, ["RetryableWriteError", "NoWritesPerformed"]);
}

#[tokio::test]
async fn a_hub_that_ends_does_not_wait_for_a_client_that_does_not_take_its_reply() {
    let (stream, _peer) = duplex(1);
    let mut client = client_at(stream).await;
    let shared = Arc::clone(&client.shared);

    let (sent, ()) = tokio::join!(client.send(&[0; 2]), async { shared.set_stage(Stage::Ended) });

    assert_eq!(sent.unwrap_err().to_string(), "the hub ends");
}

#[tokio::test]
async fn a_client_that_takes_replies_without_end_hears_that_it_has_to_go() {
    let (stream, _peer) = duplex(1024);
    let mut client = client_at(stream).await;
    client.shared.clients.end(&Ending::Kicked, |_, _| true);

    let sent = client.send(&[0; 2]).await;

    assert_eq!(sent.unwrap_err().to_string(), Ending::Kicked.to_string());
}

#[tokio::test]
async fn a_client_that_sends_without_end_hears_that_it_has_to_go() {
    let (stream, mut peer) = duplex(1024);
    let mut client = client_at(stream).await;
    let hello = message(&rawdoc! { "hello": 1, "loadBalanced": true, "$db": "admin" });
    peer.write_all(&hello).await.unwrap();
    client.shared.clients.end(&Ending::Kicked, |_, _| true);

    client.exchange().await.unwrap();

    assert_eq!(client.ending, Some(Ending::Kicked));
    drop(client);
    let mut replies = Vec::new();
    peer.read_to_end(&mut replies).await.unwrap();
    assert!(replies.is_empty(), "it was read from first");
}

#[tokio::test]
async fn a_login_that_ends_during_a_reload_does_not_escape_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cmap-hub.toml");
    let text =
        "users = 'users.toml'\nupstream.uri = 'mongodb://127.0.0.1:1/'\nlisten = [{ address = '127.0.0.1:0' }]\n";
    std::fs::write(&path, text).unwrap();
    let configuration = |subject: &str| {
        let users = format!("[[user]]\nname = 'anna'\nx509 = '{subject}'\n");
        std::fs::write(folder.path().join("users.toml"), users).unwrap();
        config::read(&path).unwrap()
    };
    let shared = Arc::new(Shared::new(configuration("CN=anna")).await.unwrap());
    let entrance = shared.enter("127.0.0.1".into()).ok().unwrap();
    let certificate = Certificate { subject: canonical("CN=anna"), is_trusted: Arc::new(AtomicBool::new(true)) };
    let mut client = Client::new(duplex(1).0, Some(certificate), shared, entrance);
    for command in [
        rawdoc! { "hello": 1, "loadBalanced": true, "$db": "admin" },
        rawdoc! { "authenticate": 1, "mechanism": "MONGODB-X509", "$db": "$external" },
    ] {
        let (line, frame, now) = (&mut client.line, message(&command), client.shared.now());
        client.shared.with(|around| line.handle_bytes(now, &frame, around));
        assert!(matches!(client.line.poll_output(), Some(LineOutput::Send(_))));
    }
    assert_eq!(client.line.user().map(|user| &**user), Some("anna"));

    client.shared.take_over(configuration("CN=other"), &BTreeSet::new());
    client.note_in();

    let output = client.line.poll_output();
    assert!(matches!(output, Some(LineOutput::HangUp(Ending::UserChanged))), "{output:?}");
}

#[test]
fn a_connection_that_is_reset_ends_as_one_that_is_closed_x_137() {
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionAborted] {
        assert_eq!(or_none(Err(kind.into())).unwrap(), 0);
    }
    assert!(or_none(Err(io::ErrorKind::TimedOut.into())).is_err());
}
