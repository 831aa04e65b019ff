//! What a client's task does without a server upstream.

use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};
use cmap_core::topology::ServerSelector;
use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::config;
use crate::protocol::{Class, Route};

/// A client of a hub that has an identity `writer`, and no server upstream.
async fn client() -> Client<DuplexStream> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cmap-hub.toml");
    let text = "upstream.uri = 'mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100'\nupstream.patience-ms = 100\n\
                listen = [{ address = '127.0.0.1:0' }]\n\
                [upstream.identity.writer]\nusername = 'writer'\npassword-file = 'password'\n";
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("password"), "secret").unwrap();
    let shared = Arc::new(Shared::new(config::read(&path).unwrap()).await.unwrap());
    let entrance = shared.enter("127.0.0.1".into()).ok().unwrap();
    Client::new(duplex(1).0, None, shared, entrance)
}

/// An insert that its driver may repeat, of a user who is `writer` upstream.
fn insert() -> Forward {
    let lsid = rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let command = rawdoc! { "insert": "c", "documents": [{}], "lsid": lsid, "txnNumber": 1_i64, "$db": "test" };
    let mut frame = Vec::new();
    MessageWriter::begin(&mut frame, MessageIds::request(1), Flags::NONE, &command, &[], &Limits::DEFAULT)
        .unwrap()
        .finish();
    let request = Request::read(&frame, &Limits::DEFAULT, cmap_core::time::Instant::ORIGIN).ok().unwrap();
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
