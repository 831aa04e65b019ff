//! What a hub listens on, and the signals that its program obeys.

use std::fs;
use std::process::Command;

use cmap_hub::hub::ReloadError;
use cmap_hub::users::{self, NewUser};
use cmap_test_server::certificates::{Authority, LOCAL_HOSTS, Validity};
use cmap_tokio::Client;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;

use super::hidden;
use super::house::{Plan, ask, code, eventually, numbered};
use super::program::HubProgram;
use super::servers::Servers;

/// Whether a user gets an answer by this connection string.
async fn is_served(uri: &str) -> bool {
    let Ok(client) = Client::connect(uri).await else { return false };
    client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.is_ok()
}

/// Whether none gets one, and soon.
async fn is_refused(uri: &str) -> bool {
    !is_served(&format!("{uri}&serverSelectionTimeoutMS=2000")).await
}

fn signal(hub: &HubProgram, name: &str) {
    let sent = Command::new("kill").args([name, &hub.process.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn add_user(path: &std::path::Path, name: &str) {
    users::add(path, &NewUser { name: name.into(), password: "secret".into(), upstream: None }).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_logs_in_under_tls() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let authority = Authority::new("hub").unwrap();
    let (certificate, trusted) = (folder.path().join("hub.pem"), folder.path().join("ca.pem"));
    fs::write(&certificate, authority.server(&LOCAL_HOSTS, Validity::Now).unwrap().pem()).unwrap();
    fs::write(&trusted, authority.pem()).unwrap();
    let listen = format!("[[listen]]\naddress = '127.0.0.1:0'\ncertificate = '{}'", certificate.display());
    let house = Plan::before(&servers, "").user("app", "").more(&listen).start().await;

    let address = house.hub.addresses()[1];
    let uri = |tls: &str| format!("mongodb://app:secret@{address}/?loadBalanced=true&{tls}");

    assert!(is_served(&uri(&format!("tls=true&tlsCAFile={}", trusted.display()))).await);
    assert!(is_refused(&uri("tls=false&connectTimeoutMS=1000")).await, "a client in the clear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_reads_a_renewed_certificate_and_keeps_the_old_one_if_it_cannot_be_used() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let [old, new] = ["old", "new"].map(|name| Authority::new(name).unwrap());
    let certificate = folder.path().join("hub.pem");
    let write = |authority: &Authority| {
        fs::write(&certificate, authority.server(&LOCAL_HOSTS, Validity::Now).unwrap().pem()).unwrap();
    };
    write(&old);
    let listen = format!("[[listen]]\naddress = '127.0.0.1:0'\ncertificate = '{}'", certificate.display());
    let house = Plan::before(&servers, "").more(&listen).start().await;
    let address = house.hub.addresses()[1];
    let uri = |authority: &Authority| {
        let trusted = folder.path().join("ca.pem");
        fs::write(&trusted, authority.pem()).unwrap();
        format!("mongodb://{address}/?loadBalanced=true&tls=true&tlsCAFile={}", trusted.display())
    };
    assert!(is_served(&uri(&old)).await);

    fs::write(&certificate, "no PEM").unwrap();
    let error = house.hub.read_again().await.unwrap_err();
    assert!(matches!(&error, ReloadError::Certificate(error) if error.path == certificate), "{error}");
    assert!(is_served(&uri(&old)).await);

    write(&new);
    assert_eq!(house.hub.read_again().await.unwrap().applied, ["listen[1].certificate"]);
    assert!(is_refused(&uri(&old)).await && is_served(&uri(&new)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_opens_listeners_and_closes_others_or_changes_none() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let [first, second] = ["first.sock", "second.sock"].map(|name| folder.path().join(name).display().to_string());
    let listen = |path: &str| format!("[[listen]]\nunix = '{path}'\n");
    let house = Plan::before(&servers, "").more(&listen(&first)).start().await;
    let uri = |path: &str| format!("mongodb://{}/?loadBalanced=true", path.replace('/', "%2F"));
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();
    assert!(is_served(&uri(&first)).await && is_refused(&uri(&second)).await);

    let reloaded = house.reload(|text| text.replace(&listen(&first), &listen(&second))).await;

    assert_eq!((reloaded.applied, reloaded.needs_restart), (vec!["listen[1].unix".to_owned()], Vec::new()));
    assert!(is_refused(&uri(&first)).await && is_served(&uri(&second)).await);
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), None, "the other one is open");
    let nowhere = listen(&folder.path().join("nowhere/hub.sock").display().to_string());
    let path = house.folder.path().join("hub.toml");
    let text = fs::read_to_string(&path).unwrap().replace(&listen(&second), &nowhere);
    fs::write(&path, text).unwrap();
    assert!(matches!(house.hub.read_again().await.unwrap_err(), ReloadError::Listen { .. }));
    assert!(is_served(&uri(&second)).await);
}

#[test]
fn a_check_reads_the_certificates_that_the_configuration_names() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hub.pem"), "no PEM").unwrap();
    fs::write(folder.path().join("secret"), "0123456789abcdef").unwrap();
    let upstream = "upstream.uri = 'mongodb://db.example/?replicaSet=rs'\n";
    let listens = "listen = [{ address = '127.0.0.1:0', certificate = 'hub.pem' }]\n".to_owned();
    let is_dialed = "listen = [{ unix = 'hub.sock' }]\n\
                     [upstream.reverse]\naddress = '127.0.0.1:0'\ncertificate = 'hub.pem'\n\
                     [[upstream.reverse.token]]\nname = 'a'\nsecret-file = 'secret'\nmembers = ['db.example:27017']\n";
    let is_dialed = format!("users = 'users.toml'\n{is_dialed}");
    add_user(&folder.path().join("users.toml"), "app");

    for (text, place) in [(listens, "hub.pem"), (is_dialed, "upstream.reverse")] {
        let config = folder.path().join("hub.toml");
        fs::write(&config, format!("{upstream}{text}")).unwrap();
        let checked = Command::new(env!("CARGO_BIN_EXE_cmap-hub")).arg("--check").arg("--config").arg(config).output();
        let checked = checked.unwrap();
        let said = String::from_utf8(checked.stderr).unwrap();
        assert!(!checked.status.success() && said.contains(place), "{said}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_logs_in_by_a_unix_socket() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let path = folder.path().join("hub.sock");
    let listen = format!("[[listen]]\nunix = '{}'\nmode = '0660'", path.display());
    let _house = Plan::before(&servers, "").user("app", "").more(&listen).start().await;

    let host = path.display().to_string().replace('/', "%2F");

    assert!(is_served(&format!("mongodb://app:secret@{host}/?loadBalanced=true")).await);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o660);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listener_refuses_what_names_a_collection_behind_a_text_that_is_not_utf8_x_133() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let authority = Authority::new("hub").unwrap();
    let [certificate, trusted, socket] = ["hub.pem", "ca.pem", "hub.sock"].map(|name| folder.path().join(name));
    fs::write(&certificate, authority.server(&LOCAL_HOSTS, Validity::Now).unwrap().pem()).unwrap();
    fs::write(&trusted, authority.pem()).unwrap();
    let mut listen = format!("[[listen]]\naddress = '127.0.0.1:0'\ncertificate = '{}'\n", certificate.display());
    if cfg!(unix) {
        listen += &format!("[[listen]]\nunix = '{}'\n", socket.display());
    }
    let rules = "[[user.allow]]\ndatabases = ['shop']\n[[user.deny]]\ncollections = ['secret']";
    let house = Plan::before(&servers, "").user("app", rules).more(&listen).start().await;
    let [plain, tls] = [0, 1].map(|index| house.hub.addresses()[index]);

    let mut places = vec![
        (plain.to_string(), String::new()),
        (tls.to_string(), format!("tls=true&tlsCAFile={}", trusted.display())),
    ];
    if cfg!(unix) {
        places.push((socket.display().to_string().replace('/', "%2F"), String::new()));
    }
    for (place, query) in places {
        let client =
            Client::connect(&format!("mongodb://app:secret@{place}/?loadBalanced=true&{query}")).await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        for command in hidden::commands() {
            let reply = ask(&mut connection, "shop", command.clone()).await;
            assert_eq!(code(&reply), Some(22), "{place}: {command:?}: {reply:?}");
        }
        assert_eq!(code(&ask(&mut connection, "shop", rawdoc! { "count": "orders" }).await), None, "{place}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sighup_users_are_read_again_and_a_mistake_changes_nothing() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let hub = HubProgram::start(folder.path(), &servers.uri(""), &["anna".into()], "");
    let uri = |user: &str| format!("mongodb://{user}:secret@{}/?loadBalanced=true", hub.address);
    assert!(is_served(&uri("anna")).await);
    assert!(!is_served(&uri("ben")).await);

    add_user(&folder.path().join("users.toml"), "ben");
    signal(&hub, "-HUP");
    eventually("the new user is served", async || is_served(&uri("ben")).await).await;

    let config = folder.path().join("cmap-hub.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\nno-such-key = 1\n")).unwrap();
    add_user(&folder.path().join("users.toml"), "carl");
    signal(&hub, "-HUP");
    assert!(is_served(&uri("anna")).await);
    assert!(!is_served(&uri("carl")).await, "the configuration with the mistake was not taken over");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_sigterm_an_open_cursor_may_end_and_then_the_program_does() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &[], "drain-seconds = 30\n");
    let client = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    client.run(("test", rawdoc! { "insert": "c", "documents": numbered(10) })).await.unwrap();
    let mut connection = client.check_out().await.unwrap();
    let reply = connection.run_command("test", rawdoc! { "find": "c", "batchSize": 2 }).await.unwrap();
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();

    signal(&hub, "-TERM");
    let more = rawdoc! { "getMore": id, "collection": "c" };
    let rest = connection.run_command("test", more).await.unwrap();
    let rest = rest.get_document("cursor").unwrap().get_array("nextBatch").unwrap().into_iter().count();
    drop(connection);
    client.close(std::time::Duration::from_secs(1)).await.unwrap();

    assert_eq!(rest, 8);
    let ended = end_of(&mut hub).await;
    assert!(ended.success(), "{ended:?}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_sigterm_ends_the_program_and_its_status_which_its_unit_expects_says_that_a_client_was_cut_off() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &[], "drain-seconds = 300\n");
    let client = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    client.run(("test", rawdoc! { "insert": "c", "documents": numbered(10) })).await.unwrap();
    let mut connection = client.check_out().await.unwrap();
    connection.run_command("test", rawdoc! { "find": "c", "batchSize": 2 }).await.unwrap();

    signal(&hub, "-TERM");
    // Two signals that are not heard yet are one.
    eventually("it has heard the first", async || tokio::net::TcpStream::connect(hub.address).await.is_err()).await;
    assert_eq!(hub.process.0.try_wait().unwrap(), None, "it waits for the cursor");
    signal(&hub, "-TERM");

    assert_eq!(end_of(&mut hub).await.code(), Some(1));
    let unit = include_str!("../../systemd/cmap-hub.service");
    assert!(unit.lines().any(|line| line == "SuccessExitStatus=1"), "{unit}");
}

/// How the program ends, which is about to.
#[cfg(unix)]
async fn end_of(hub: &mut HubProgram) -> std::process::ExitStatus {
    let mut ended = None;
    eventually("the program ends", async || {
        ended = hub.process.0.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    ended.unwrap()
}
