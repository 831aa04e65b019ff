//! Clients that come through a proxy, which says who they are (the PROXY protocol).

use std::fs;
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, ServerSelector};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::house::{House, Plan, eventually, order};
use super::program::Program;
use super::servers::Servers;

const OF_1: &[u8] = b"PROXY TCP4 192.0.2.1 127.0.0.1 12345 27027\r\n";
const OF_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x02\x7f\x00\x00\x01\x30\x39\x69\x93";

/// A hub whose second listener serves proxies alone.
async fn house(servers: &Servers, proxies: &str) -> (House, SocketAddr) {
    let listen =
        format!("[[listen]]\naddress = '127.0.0.1:0'\nproxy-from = [{proxies}]\n[control]\npath = 'control.sock'");
    let house = Plan::before(servers, "").user("anna", "").more(&listen).start().await;
    let address = house.hub.addresses()[1];
    (house, address)
}

/// A proxy that begins its connections to the hub with these bytes.
async fn proxy(hub: SocketAddr, header: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut hub = TcpStream::connect(hub).await.unwrap();
                hub.write_all(header).await.unwrap();
                // Either side may hang up.
                let _ = copy_bidirectional(&mut client, &mut hub).await;
            });
        }
    });
    address
}

async fn is_served(client: &Client) -> bool {
    client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.is_ok()
}

/// Whether no command of such a client is run, which does not try for long.
async fn is_refused(client: &Client) -> bool {
    let count = client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable);
    count.within(Duration::from_secs(2)).run().await.is_err()
}

async fn connect(proxy: SocketAddr) -> Client {
    Client::connect(&format!("mongodb://anna:secret@{proxy}/?loadBalanced=true")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_who_its_proxy_says_in_either_version() {
    let servers = Servers::single().await;
    let (house, address) = house(&servers, "'127.0.0.0/8'").await;

    for (header, client) in [(OF_1, "192.0.2.1"), (OF_2, "192.0.2.2")] {
        let through = connect(proxy(address, header).await).await;
        assert!(is_served(&through).await);

        let kicked = order(house.folder.path(), &format!("kick address {client}")).await;

        assert_eq!(kicked, json!({ "kicked": 1 }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_begin_with_a_header_is_hung_up_on() {
    let servers = Servers::single().await;
    let (house, address) = house(&servers, "'127.0.0.1'").await;

    for bytes in [&b"\x3a\0\0\0\0\0\0\0\0\0\0\0\xdd\x07"[..], b"PROXY TCP4 nobody", &OF_2[..20], b"GET / HTTP/1.1\r\n"]
    {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        assert!(matches!(socket.read(&mut [0; 16]).await, Ok(0) | Err(_)));
    }

    eventually("nobody is left", async || house.hub.connections() == 0).await;
    let counts = order(house.folder.path(), "status").await["counts"].clone();
    assert_eq!(counts["turned_away"], 4, "{counts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_from_elsewhere_is_not_believed_and_the_other_listener_takes_none() {
    let servers = Servers::single().await;
    let (house, address) = house(&servers, "'10.0.0.0/8', '2001:db8::/32'").await;
    let without = house.hub.addresses()[0];

    assert!(is_refused(&connect(proxy(address, OF_1).await).await).await, "the proxy is no proxy of the hub's");
    assert!(is_refused(&connect(proxy(without, OF_1).await).await).await, "no proxies come in here");

    assert!(is_served(&connect(without).await).await);
}

#[test]
#[ignore = "full: needs HAProxy, which .ci/full installs"]
fn clients_of_haproxy_are_known_by_either_version() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let servers = Servers::single().await;
        let (house, hub) = house(&servers, "'127.0.0.7'").await;
        for send in ["send-proxy", "send-proxy-v2"] {
            let (_haproxy, address) = start_haproxy(folder.path(), hub, send).await;

            let client = connect(address).await;
            assert!(is_served(&client).await, "{send}");

            assert_eq!(order(house.folder.path(), "kick address 127.0.0.1").await, json!({ "kicked": 1 }), "{send}");
        }
    });
}

async fn start_haproxy(folder: &Path, hub: SocketAddr, send: &str) -> (Program, SocketAddr) {
    // It cannot say which port it was given.
    let address = BlockingListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = folder.join("haproxy.cfg");
    let text = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n\
         listen mongodb\n bind {address}\n server only {hub} source 127.0.0.7 {send}\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new("haproxy");
    let process = Program(command.arg("-db").arg("-f").arg(config).stderr(Stdio::null()).spawn().unwrap());
    eventually("it listens", async || TcpStream::connect(address).await.is_ok()).await;
    (process, address)
}
