//! Clients that prove who they are by a certificate (MONGODB-X509).

use std::fs;
use std::net::SocketAddr;

use cmap_test_server::certificates::{Authority, KeyKind, LOCAL_HOSTS, Validity, subject};
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, ServerSelector};
use tempfile::TempDir;

use super::house::{House, Plan, eventually};
use super::servers::Servers;

/// A hub under TLS that knows the authority `ours`, the user `nightly` by the certificate `client`, and the user `anna` by a password. The
/// folder has the certificates `client`, `other` and, of another authority, `stranger`.
async fn house(servers: &Servers) -> (House, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [ours, others] = ["ours", "others"].map(|name| Authority::new(name).unwrap());
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    write("hub.pem", ours.server(&LOCAL_HOSTS, Validity::Now).unwrap().pem());
    write("ca.pem", ours.pem());
    for (name, authority, subject) in
        [("client", &ours, "client"), ("other", &ours, "other"), ("stranger", &others, "client")]
    {
        write(name, authority.client(subject, KeyKind::P256).unwrap().pem());
    }
    let file = |name: &str| folder.path().join(name).display().to_string();
    let listen = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\ncertificate = '{}'\nclient-authorities = '{}'",
        file("hub.pem"),
        file("ca.pem")
    );
    let nightly =
        format!("[[user]]\nname = 'nightly'\nx509 = '{}'\n[[user.allow]]\ncommands = ['count']", subject("client"));
    let house = Plan::before(servers, "").user("anna", &nightly).more(&listen).start().await;
    (house, folder)
}

fn address(house: &House) -> SocketAddr {
    house.hub.addresses()[1]
}

/// A client that shows a certificate.
async fn client(house: &House, folder: &TempDir, certificate: &str, login: &str, query: &str) -> Client {
    let file = |name: &str| folder.path().join(name).display().to_string();
    let uri = format!(
        "mongodb://{login}{}/?loadBalanced=true&tls=true&tlsCAFile={}&tlsCertificateKeyFile={}{query}",
        address(house),
        file("ca.pem"),
        file(certificate)
    );
    Client::connect(&uri).await.unwrap()
}

async fn is_served(client: &Client) -> bool {
    client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.is_ok()
}

const BY_CERTIFICATE: &str = "&authMechanism=MONGODB-X509";

/// A login by certificate that the hub refuses: its client need not try for long.
const IN_VAIN: &str = "&authMechanism=MONGODB-X509&timeoutMS=2000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_is_known_by_its_certificate() {
    let servers = Servers::single().await;
    let (house, folder) = house(&servers).await;

    let nightly = client(&house, &folder, "client", "", BY_CERTIFICATE).await;

    assert!(is_served(&nightly).await);
    let status = nightly.run(("admin", rawdoc! { "connectionStatus": 1 })).await.unwrap();
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    assert_eq!(users.get_document(0).unwrap().get_str("user").unwrap(), "nightly");
    let insert = rawdoc! { "insert": "c", "documents": [{}] };
    let refused = nightly.run(("test", insert)).await.unwrap_err().to_string();
    assert!(refused.contains("not authorized on test.c to execute command { insert }"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_proves_its_own_user_and_nobody_else() {
    let servers = Servers::single().await;
    let (house, folder) = house(&servers).await;

    for (certificate, login) in [("other", ""), ("stranger", ""), ("client", "nightly@"), ("client", "anna@")] {
        assert!(!is_served(&client(&house, &folder, certificate, login, IN_VAIN).await).await, "{certificate} {login}");
    }

    let name = subject("client").replace('=', "%3D").replace(',', "%2C");
    assert!(is_served(&client(&house, &folder, "client", &format!("{name}@"), BY_CERTIFICATE).await).await);
    assert!(is_served(&client(&house, &folder, "other", "anna:secret@", "").await).await, "a password is enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_without_the_certificate_ends_its_connections() {
    let servers = Servers::single().await;
    let (house, folder) = house(&servers).await;
    let nightly = client(&house, &folder, "client", "", BY_CERTIFICATE).await;
    assert!(is_served(&nightly).await);
    let users = house.folder.path().join("users.toml");
    let text = fs::read_to_string(&users).unwrap();
    fs::write(&users, text.replace("CN=client", "CN=another")).unwrap();

    let reloaded = house.reload(str::to_owned).await;

    assert_eq!(reloaded.ended, 1);
    eventually("nobody is served", async || !is_served(&nightly).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_with_other_authorities_ends_whom_the_old_ones_vouch_for() {
    let servers = Servers::single().await;
    let (house, folder) = house(&servers).await;
    let nightly = client(&house, &folder, "client", "", BY_CERTIFICATE).await;
    assert!(is_served(&nightly).await);
    // A renewed file with the authority as it was changes nothing.
    let unchanged = house.reload(str::to_owned).await;
    let authority = fs::read_to_string(folder.path().join("ca.pem")).unwrap();
    fs::write(folder.path().join("ca.pem"), Authority::new("another").unwrap().pem()).unwrap();

    let reloaded = house.reload(str::to_owned).await;

    fs::write(folder.path().join("ca.pem"), authority).unwrap();
    assert_eq!((unchanged.ended, reloaded.ended), (0, 1));
    eventually("nobody is served", async || !is_served(&nightly).await).await;
    assert!(!is_served(&client(&house, &folder, "client", "", IN_VAIN).await).await);
}
