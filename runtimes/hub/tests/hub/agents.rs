//! Servers that the hub cannot dial: their agents dial the hub.

use std::time::Duration;

use cmap_core::options::TlsOptions;
use cmap_core::reverse::Token;
use cmap_relay::{Application, Drained, Limits, Member, Relay, Settings};
use cmap_runtime::Runtime;
use cmap_runtime::tls::{PemTexts, TlsConfig};
use cmap_test_server::certificates::{Authority, LOCAL_HOSTS, Validity};
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::Tokio;
use cmap_tokio::bson::rawdoc;

use super::house::{House, Plan, eventually};
use super::servers::Servers;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A name that is looked up nowhere.
const MEMBER: &str = "db1.invalid:27017";

/// A relay that speaks for the server at a hub.
fn relay(servers: &Servers, house: &House, authority: &Authority) -> Relay<Tokio> {
    let mut texts = PemTexts::default();
    let authority = authority.pem();
    texts.authorities = Some(authority.as_bytes());
    let member = Member { name: MEMBER.parse().unwrap(), connect: servers.host(0).parse().unwrap() };
    let application = Application {
        address: house.hub.reverse_address().unwrap().to_string().parse().unwrap(),
        members: vec![member.name.clone()],
        tls: TlsConfig::with_pem(&TlsOptions::default(), texts).unwrap(),
        token: Some(Token::new("db1", SECRET.as_bytes()).unwrap()),
    };
    let mut limits = Limits::default();
    limits.drain_timeout = Duration::from_secs(1);
    let settings = Settings { members: vec![member], applications: vec![application], limits };
    Relay::start(Tokio::current().unwrap(), &settings).unwrap()
}

async fn house_for_agents(authority: &Authority) -> (House, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("listener.pem"), authority.server(&LOCAL_HOSTS, Validity::Now).unwrap().pem()).unwrap();
    std::fs::write(file("token"), SECRET).unwrap();
    let section = format!(
        "[upstream.reverse]\naddress = '127.0.0.1:0'\ncertificate = '{}'\n\
         [[upstream.reverse.token]]\nname = 'db1'\nsecret-file = '{}'\nmembers = ['{MEMBER}']",
        file("listener.pem").display(),
        file("token").display(),
    );
    let uri = format!("mongodb://{MEMBER}/?directConnection=true");
    (Plan::at(&uri).more(&section).status().start().await, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_to_a_server_whose_relay_has_dialled_the_hub() {
    let (servers, authority) = (Servers::single().await, Authority::new("authority").unwrap());
    let (house, _folder) = house_for_agents(&authority).await;
    assert_eq!(house.get("/healthz").await.0, 503, "no agent has come yet");
    let relay = relay(&servers, &house, &authority);
    let client = house.client().await;

    for number in 0..20 {
        let insert = rawdoc! { "insert": "c", "documents": [{ "_id": number }] };
        client.operation(("test", insert)).on(Writable).run().await.unwrap();
    }

    let count = client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap();
    assert_eq!(count.get_i32("n").unwrap(), 20);
    let status: serde_json::Value = serde_json::from_str(&house.get("/status.json").await.1).unwrap();
    assert_eq!(status["agents"][0]["member"], MEMBER, "{status}");
    // The hub's connections stay until the relay cuts them.
    assert_ne!(relay.drain().await, Drained::Whole);
    eventually("the hub knows that the server cannot be reached", async || house.get("/healthz").await.0 == 503).await;
}
