//! Servers learn who asks (`$client`).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use cmap_tokio::Client;
use cmap_tokio::bson::{RawDocument, RawDocumentBuf, rawdoc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::house::Plan;
use super::servers::Servers;

/// What was sent to a server.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<u8>>>);

impl Sent {
    /// The documents `$client` in it.
    fn introductions(&self) -> Vec<RawDocumentBuf> {
        const KEY: &[u8] = b"\x03$client\0";

        let bytes = self.0.lock().unwrap();
        let starts = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(KEY)).map(|at| at + KEY.len());
        starts
            .map(|start| {
                let length = usize::try_from(i32::from_le_bytes(bytes[start..start + 4].try_into().unwrap())).unwrap();
                RawDocument::from_bytes(&bytes[start..start + length]).unwrap().to_owned()
            })
            .collect()
    }
}

/// A way to the server on which all that is sent to it is noted.
async fn observe(server: SocketAddr) -> (SocketAddr, Sent) {
    let (listener, sent) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Sent::default());
    let (address, noted) = (listener.local_addr().unwrap(), sent.clone());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let noted = noted.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                // Either side may hang up.
                while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
                    noted.0.lock().unwrap().extend_from_slice(&buffer[..length]);
                    let _ = to_server.write_all(&buffer[..length]).await;
                }
            });
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        }
    });
    (address, sent)
}

/// A hub that was asked for a count by anna's application `shop`, with further lines of its section `upstream`; and what it has sent.
async fn sent_by(upstream: &str, command: RawDocumentBuf) -> Vec<RawDocumentBuf> {
    let servers = Servers::single().await;
    let server = servers.uri("").split(['/', '?']).nth(2).unwrap().parse().unwrap();
    let (address, sent) = observe(server).await;
    let uri = format!("mongodb://{address}/?directConnection=true");
    let house = Plan::at(&uri).user("anna", "").upstream(upstream).start().await;
    let client: Client = house.client_as("anna", "appName=shop").await;
    client.run(("test", command)).await.unwrap();
    sent.introductions()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_learns_which_application_and_user_asks_x_194() {
    let introductions = sent_by("", rawdoc! { "count": "c" }).await;

    let [introduction] = introductions.as_slice() else { panic!("{introductions:?}") };
    assert_eq!(introduction.get_document("application").unwrap().get_str("name").unwrap(), "shop");
    assert!(introduction.get_document("driver").unwrap().get_str("name").is_ok(), "{introduction:?}");
    assert_eq!(introduction.get_document("hub").unwrap(), &*rawdoc! { "user": "anna", "remote": "127.0.0.1" });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_said_under_the_strict_api_or_if_the_configuration_says_so() {
    let strict = rawdoc! { "count": "c", "apiVersion": "1", "apiStrict": true };

    assert_eq!(sent_by("", strict).await, []);
    assert_eq!(sent_by("client-metadata = false", rawdoc! { "count": "c" }).await, []);
}
