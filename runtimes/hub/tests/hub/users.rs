//! Logins, owners and rules, and the program that edits users files.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cmap_hub::hub::Reloaded;
use cmap_hub::users::{self, NewUser};
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, rawdoc};
use cmap_tokio::{Client, ServerSelector};

use super::house::{Plan, ask, code, eventually, numbered};
use super::servers::Servers;

const READER: &str = "[[user.allow]]\ndatabases = ['shop']\ncommands = ['find', 'aggregate', 'getMore', 'count']";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_log_in_at_the_hub_by_either_mechanism() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("app", "").start().await;

    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1"] {
        let client = house.client_as("app", &format!("authMechanism={mechanism}")).await;
        let status = client.run(("admin", rawdoc! { "connectionStatus": 1 })).await.unwrap();
        let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
        assert_eq!(users.get_document(0).unwrap().get_str("user").unwrap(), "app", "{mechanism}");
        client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
    }
    for (user, query) in [("nobody", ""), ("app", "authSource=other")] {
        let error = house.client_as(user, query).await.check_out().await.unwrap_err().to_string();
        assert!(error.contains("the server refused the login"), "{error}");
    }
    let mut stranger = house.client().await.check_out().await.unwrap();
    assert_eq!(code(&ask(&mut stranger, "test", rawdoc! { "count": "c" }).await), Some(13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_of_another_connection_is_not_found_x_132() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    let documents = numbered(10);
    anna.run(("test", rawdoc! { "insert": "c", "documents": documents })).await.unwrap();
    let (mut own, mut other) = (anna.check_out().await.unwrap(), ben.check_out().await.unwrap());
    let reply = ask(&mut own, "test", rawdoc! { "find": "c", "batchSize": 2 }).await;
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();

    let more = rawdoc! { "getMore": id, "collection": "c" };
    assert_eq!(code(&ask(&mut other, "test", more.clone()).await), Some(43));
    let killed = ask(&mut other, "test", rawdoc! { "killCursors": "c", "cursors": [id] }).await;
    assert_eq!(killed.get_array("cursorsNotFound").unwrap().get_i64(0).unwrap(), id);

    assert_eq!(code(&ask(&mut own, "test", more).await), None, "it is still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_another_user_is_refused_x_132() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").start().await;
    let (anna, ben) = (house.client_as("anna", "").await, house.client_as("ben", "").await);
    let (mut own, mut other) = (anna.check_out().await.unwrap(), ben.check_out().await.unwrap());
    let lsid = rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let count = rawdoc! { "count": "c", "lsid": lsid.clone() };

    assert_eq!(code(&ask(&mut own, "test", count.clone()).await), None);
    assert_eq!(code(&ask(&mut other, "test", count.clone()).await), Some(13));
    let end = rawdoc! { "endSessions": [lsid] };
    assert_eq!(code(&ask(&mut other, "admin", end.clone()).await), None, "nothing of its own is ended");
    assert_eq!(code(&ask(&mut other, "test", count.clone()).await), Some(13), "and nothing of another's");
    assert_eq!(code(&ask(&mut own, "admin", end).await), None);
    assert_eq!(code(&ask(&mut other, "test", count).await), None, "it is nobody's any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_command_in_a_transaction_is_refused_and_the_transaction_goes_on_x_133() {
    let servers = Servers::replica_set().await;
    let rules = "[[user.allow]]\ndatabases = ['shop']\n[[user.allow]]\ndatabases = ['admin']\ncommands = ['*Transaction', 'endSessions']";
    let house = Plan::before(&servers, "").user("app", rules).start().await;
    let client = house.client_as("app", "").await;
    client.run(("shop", rawdoc! { "create": "c" })).await.unwrap();
    let mut session = client.start_session().unwrap();
    session.start_transaction().unwrap();
    let insert = || rawdoc! { "insert": "c", "documents": [{ "x": 1 }] };
    client.operation(("shop", insert())).on(ServerSelector::Writable).in_session(&mut session).run().await.unwrap();

    let forbidden =
        client.operation(("other", insert())).on(ServerSelector::Writable).in_session(&mut session).run().await;

    let error = forbidden.unwrap_err();
    assert!(error.to_string().contains("not authorized on other.c to execute command { insert }"), "{error}");
    assert!(!error.has_label("TransientTransactionError"), "a repetition would fail again");
    session.commit_transaction().await.unwrap();
    let count = client.operation(("shop", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
    assert_eq!(count.get_i32("n").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_hold_for_what_pipelines_read_and_write_x_133() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("reader", READER).start().await;
    let client = house.client_as("reader", "").await;
    let mut connection = client.check_out().await.unwrap();

    assert_eq!(code(&ask(&mut connection, "shop", rawdoc! { "count": "c" }).await), None);
    for forbidden in [
        rawdoc! { "insert": "c", "documents": [{}] },
        rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} },
        rawdoc! { "aggregate": "c", "pipeline": [{ "$unionWith": { "db": "other", "coll": "x" } }], "cursor": {} },
        rawdoc! { "aggregate": "c", "pipeline": [{ "$lookup": { "from": { "db": "other", "coll": "x" } } }], "cursor": {} },
        rawdoc! { "dropDatabase": 1 },
        rawdoc! { "shutdown": 1 },
    ] {
        let reply = ask(&mut connection, "shop", forbidden.clone()).await;
        assert_eq!(code(&reply), Some(13), "{forbidden:?}: {reply:?}");
    }
    assert_eq!(code(&ask(&mut connection, "other", rawdoc! { "count": "c" }).await), Some(13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_rules_at_once_and_removes_users() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("app", "").user("other", "").start().await;
    let client = house.client_as("app", "").await;
    let mut connection = client.check_out().await.unwrap();
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), None);

    let path = house.folder.path().join("users.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, before.replacen("name = \"app\"", "name = \"app\"\ndeny = [{ collections = ['c'] }]", 1))
        .unwrap();
    house.reload(str::to_owned).await;
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), Some(13));
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "d" }).await), None);

    std::fs::write(&path, before.replacen("name = \"app\"", "name = \"gone\"", 1)).unwrap();
    assert_eq!(house.reload(str::to_owned).await.ended, 1);
    let count = || rawdoc! { "count": "d" };
    eventually("the hub hangs up", async || connection.run_command("test", count()).await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_transaction_of_a_user_that_is_removed_is_aborted_x_137() {
    let servers = Servers::replica_set().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    directly.run(("test", rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] })).await.unwrap();
    let house = Plan::before(&servers, "").user("app", "").user("other", "").start().await;
    let client = house.client_as("app", "").await;
    let update = |x: i32| rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": x } } }] };
    let mut session = client.start_session().unwrap();
    session.start_transaction().unwrap();
    client.operation(("test", update(1))).in_session(&mut session).run().await.unwrap();
    let path = house.folder.path().join("users.toml");
    users::remove(&path, "app").unwrap();

    assert_eq!(house.reload(str::to_owned).await.ended, 1);

    // Another transaction conflicts for as long as the first one is open.
    eventually("the transaction is aborted", async || {
        let mut session = directly.start_session().unwrap();
        session.start_transaction().unwrap();
        let ran = directly.operation(("test", update(2))).in_session(&mut session).run().await;
        ran.is_ok() && session.commit_transaction().await.is_ok()
    })
    .await;
    assert!(session.commit_transaction().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_without_users_does_not_open_the_hub() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("app", "").start().await;
    let mut stranger = house.client().await.check_out().await.unwrap();

    let reloaded = house.reload(|text| text.replace("users = 'users.toml'\n", "")).await;
    assert_eq!((reloaded.applied, reloaded.needs_restart), (Vec::new(), vec!["users".to_owned()]));

    assert_eq!(code(&ask(&mut stranger, "test", rawdoc! { "count": "c" }).await), Some(13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_a_reload_keeps_go_on_as_their_own_identities_x_133() {
    let (servers, passwords) = (Servers::single().await, tempfile::tempdir().unwrap());
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let create = rawdoc! { "createUser": "writer", "pwd": "secret", "roles": [] };
    directly.operation(("admin", create)).on(ServerSelector::Writable).run().await.unwrap();
    let password = passwords.path().join("password");
    std::fs::write(&password, "secret").unwrap();
    // No server knows `nobody`: who runs as that is refused there, and who runs as the hub is not.
    let identities: String = ["writer", "nobody", "spare"]
        .map(|name| {
            let password = password.display();
            format!("[upstream.identity.{name}]\nusername = '{name}'\npassword-file = '{password}'\n")
        })
        .concat();
    let plan = Plan::before(&servers, "").user("anna", "upstream = 'writer'").user("ben", "upstream = 'nobody'");
    let house = plan.upstream("patience-ms = 5000").more(&identities).start().await;
    let mut anna = house.client_as("anna", "").await.check_out().await.unwrap();
    let mut ben = house.client_as("ben", "").await.check_out().await.unwrap();

    let reloaded = house.reload(|text| text.replace("users = 'users.toml'\n", "").replace(&identities, "")).await;

    assert_eq!(code(&ask(&mut anna, "test", rawdoc! { "count": "c" }).await), None);
    assert_eq!(code(&ask(&mut ben, "test", rawdoc! { "count": "c" }).await), Some(6));
    let keys = |name: &str| ["password-file", "username"].map(|key| format!("upstream.identity.{name}.{key}"));
    assert_eq!(reloaded.applied, keys("spare"));
    assert_eq!(reloaded.needs_restart, [&keys("nobody")[..], &keys("writer"), &["users".to_owned()]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_with_other_keys_or_another_identity_ends_the_users_connections() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("app", "").user("other", "").start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let create = rawdoc! { "createUser": "new", "pwd": "secret", "roles": [] };
    directly.operation(("admin", create)).on(ServerSelector::Writable).run().await.unwrap();
    let count = || rawdoc! { "count": "c" };
    let mut other = house.client_as("other", "").await.check_out().await.unwrap();
    assert_eq!(code(&ask(&mut other, "test", count()).await), None);
    let users = house.folder.path().join("users.toml");
    let before = std::fs::read_to_string(&users).unwrap();
    let connect = async || house.client_as("app", "").await.check_out().await.unwrap();

    // The same password with another salt.
    let mut app = connect().await;
    std::fs::remove_file(&users).unwrap();
    let new = NewUser { name: "app".into(), password: "secret".into(), upstream: None };
    users::add(&users, &new).unwrap();
    let (_, of_other) = before.split_at(before.rfind("[[user]]").unwrap());
    let again = format!("{}\n{of_other}", std::fs::read_to_string(&users).unwrap());
    std::fs::write(&users, &again).unwrap();
    let reloaded = house.reload(str::to_owned).await;
    assert_eq!((reloaded.applied, reloaded.ended), (vec!["users".to_owned()], 1));
    eventually("the hub hangs up", async || app.run_command("test", count()).await.is_err()).await;

    let mut app = connect().await;
    std::fs::write(house.folder.path().join("password"), "secret").unwrap();
    std::fs::write(&users, again.replacen("name = \"app\"", "name = \"app\"\nupstream = \"new\"", 1)).unwrap();
    let identity = "[upstream.identity.new]\nusername = 'new'\npassword-file = 'password'\n";
    assert_eq!(house.reload(|text| format!("{text}{identity}")).await.ended, 1);
    eventually("the hub hangs up", async || app.run_command("test", count()).await.is_err()).await;
    let mut app = connect().await;
    assert_eq!(code(&ask(&mut app, "test", count()).await), None, "as the new identity");
    assert_eq!(code(&ask(&mut other, "test", count()).await), None, "nothing of its has changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_with_a_credential_that_servers_refuse_changes_nothing() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("app", "").start().await;
    let mut connection = house.client_as("app", "").await.check_out().await.unwrap();
    let config = house.folder.path().join("hub.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("mongodb://", "mongodb://nobody:wrong@");
    std::fs::write(&config, format!("{text}[limits]\nconnections = 1\n")).unwrap();

    let error = house.hub.read_again().await.unwrap_err().to_string();

    assert!(
        error.starts_with("upstream.uri: ") && error.contains("the client goes on with the old credential"),
        "{error}"
    );
    assert_eq!(code(&ask(&mut connection, "test", rawdoc! { "count": "c" }).await), None);
    assert!(house.client_as("app", "").await.check_out().await.is_ok(), "the limit is the old one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_is_cut_off_changes_nothing() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=20").status().start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    servers.kill_primary();
    eventually("the hub knows it", async || house.get("/healthz").await.0 == 503).await;
    let config = house.folder.path().join("hub.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    let after = before.replace("mongodb://", "mongodb://hub:secret@").replace("maxPoolSize=20", "maxPoolSize=7");
    std::fs::write(&config, after).unwrap();

    // The password waits for a server.
    let cut_off = tokio::time::timeout(Duration::from_millis(100), house.hub.read_again()).await;

    assert!(cut_off.is_err());
    let metrics = house.get("/metrics").await.1;
    let largest = metrics.lines().find(|line| line.starts_with("db_client_connection_max{")).unwrap();
    assert!(largest.ends_with(" 20"), "{largest}");
    std::fs::write(&config, before).unwrap();
    assert_eq!(house.hub.read_again().await.unwrap(), Reloaded::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_says_what_counts_from_now_on_and_what_does_not() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").start().await;
    let more = "[limits]\nwaiting = 7\n[status]\naddress = '127.0.0.1:0'\n";

    let reloaded =
        house.reload(|text| format!("{}{more}", text.replace("drain-seconds = 2", "drain-seconds = 3"))).await;

    assert_eq!(reloaded.applied, ["drain-seconds", "limits.waiting"]);
    assert_eq!(reloaded.needs_restart, ["status.address"]);
    let again = house.hub.read_again().await.unwrap();
    assert_eq!((again.applied.len(), again.needs_restart), (0, vec!["status.address".to_owned()]));
}

/// The program that edits users files: whether it succeeded, and what it printed.
fn edit(words: &[&str], file: &Path, input: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
    command.arg("user").args(words).arg("--users").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    (ended.status.success(), String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn the_program_adds_users_lists_them_changes_their_passwords_and_removes_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.toml");

    assert!(edit(&["add", "anna", "--upstream", "writer"], &file, "tiger\n").0);
    assert!(edit(&["add", "ben"], &file, "lily\n").0);
    let before = std::fs::read_to_string(&file).unwrap();
    assert!(edit(&["passwd", "ben"], &file, "rose\n").0);
    let after = std::fs::read_to_string(&file).unwrap();

    assert_ne!(before, after);
    assert_eq!(edit(&["list"], &file, ""), (true, "anna\t\twriter\nben\t\t\n".into()));
    assert!(edit(&["remove", "anna"], &file, "").0);
    assert!(!edit(&["remove", "anna"], &file, "").0);
    assert_eq!(edit(&["list"], &file, ""), (true, "ben\t\t\n".into()));
}
