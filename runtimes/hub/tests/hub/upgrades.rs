//! A new process takes over from one that runs, and clients notice nothing.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, CommandError, CommandErrorKind, OperationError};
use command_fds::{CommandFdExt, FdMapping};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::house::{Plan, SOON, ask, code, eventually, get, order};
use super::program::{HubProgram, Program};
use super::servers::Servers;

const CONTROL: &str = "drain-seconds = 15\ncontrol.path = 'control.sock'\n";

/// The number of the process that has taken over. Nobody waits for it: it ends when the test says so.
async fn upgrade(folder: &Path) -> Successor {
    let answer = order(folder, "upgrade").await;
    assert_eq!(answer["upgraded"], true, "{answer}");
    Successor(answer["process"].as_u64().unwrap())
}

/// A process that another hub has started. Dropping it kills it.
struct Successor(u64);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _ = Command::new("kill").arg("-KILL").arg(self.0.to_string()).stderr(Stdio::null()).status();
    }
}

/// Whether the process ends by itself, and without an error.
async fn ends(process: &mut Program) -> bool {
    let mut ended = None;
    eventually("the old process ends", async || {
        ended = process.0.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    ended.is_some_and(|status| status.success())
}

/// Whether the process ends well while a client goes on, which notices nothing. One that says nothing would be waited for.
async fn ends_while_asked(process: &mut Program, client: &Client) -> bool {
    let mut ended = None;
    eventually("the old process ends", async || {
        count(client).await;
        ended = process.0.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    ended.is_some_and(|status| status.success())
}

async fn insert(client: &Client, id: &str) -> Result<(), OperationError> {
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": id }] };
    client.operation(("test", insert)).on(Writable).run().await.map(drop)
}

async fn count(client: &Client) -> i32 {
    client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap().get_i32("n").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_notice_nothing_of_upgrades_x_189() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &["anna".into()], CONTROL);
    let uri = format!("mongodb://anna:secret@{}/?loadBalanced=true", hub.address);
    let client = Client::connect(&uri).await.unwrap();
    let (ended, written) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicI32::new(0) }; 8]));
    let writers: Vec<_> = (0..written.len())
        .map(|writer| {
            let (client, ended, written) = (client.clone(), Arc::clone(&ended), Arc::clone(&written));
            tokio::spawn(async move {
                while !ended.load(Ordering::Relaxed) {
                    let number = written[writer].load(Ordering::Relaxed);
                    insert(&client, &format!("{writer}-{number}")).await.unwrap();
                    written[writer].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let counts = || written.each_ref().map(|count| count.load(Ordering::Relaxed));

    let mut successors = Vec::new();
    for _ in 0..3 {
        // A write is repeated twice, so none may meet three upgrades.
        let before = counts();
        eventually("all go on writing", async || before.iter().zip(counts()).all(|(before, now)| now > before + 1))
            .await;
        successors.push(upgrade(folder.path()).await);
    }
    let ended_well = ends(&mut hub.process).await;
    ended.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }

    assert!(ended_well);
    assert_eq!(count(&client).await, counts().iter().sum::<i32>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_listener_is_handed_over() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let status = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let more = format!("status.address = '{status}'\n{CONTROL}");
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &[], &more);
    let config = folder.path().join("cmap-hub.toml");
    let text = fs::read_to_string(&config).unwrap();
    // A reload opens one more, which the new process takes over, too.
    fs::write(&config, text.replace("}]", "}, { unix = 'hub.sock', mode = '0600' }]")).unwrap();
    assert_eq!(order(folder.path(), "reload").await["applied"], json!(["listen[1].mode", "listen[1].unix"]));

    let successor = upgrade(folder.path()).await;
    assert!(ends(&mut hub.process).await);

    assert_eq!(get(status, "/healthz").await.0, 200);
    assert_eq!(order(folder.path(), "status").await["stage"], Value::Null, "the new one answers");
    let unix = folder.path().join("hub.sock").display().to_string().replace('/', "%2F");
    for host in [unix, hub.address.to_string()] {
        let client = Client::connect(&format!("mongodb://{host}/?loadBalanced=true")).await.unwrap();
        assert_eq!(count(&client).await, 0);
    }
    drop(successor);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_that_fails_changes_nothing() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &["anna".into()], CONTROL);
    let uri = format!("mongodb://anna:secret@{}/?loadBalanced=true", hub.address);
    let client = Client::connect(&uri).await.unwrap();
    let config = folder.path().join("cmap-hub.toml");
    let good = fs::read_to_string(&config).unwrap();
    let in_use = TcpListener::bind("127.0.0.1:0").unwrap();
    let another = format!("}}, {{ address = '{}' }}]", in_use.local_addr().unwrap());

    // Before it asks for the listeners, before it has them all, and before it reaches a server.
    for bad in [
        format!("no-such-key = 1\n{good}"),
        good.replace("}]", &another),
        good.replace(&servers.uri(""), "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"),
    ] {
        fs::write(&config, bad).unwrap();
        let answer = order(folder.path(), "upgrade").await;
        let error = answer["error"].as_str().unwrap();
        assert!(error.starts_with("the new process has ended (exit status: 2) before it took over; see "), "{error}");
    }

    insert(&client, "a").await.unwrap();
    fs::write(&config, good).unwrap();
    let _successor = upgrade(folder.path()).await;
    insert(&client, "b").await.unwrap();
    assert!(ends_while_asked(&mut hub.process, &client).await);
    assert_eq!(count(&client).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_asks_for_the_listeners_and_goes_away_changes_nothing() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &[], CONTROL);

    for said in ["", "take", "taken at last\n"] {
        let mut socket = UnixStream::connect(folder.path().join("control.sock")).await.unwrap();
        let mut offer = String::new();
        eventually("the hub has noticed that the last one has gone", async || {
            socket.write_all(b"hand-over\n").await.unwrap();
            let mut bytes = [0; 4096];
            let length = socket.read(&mut bytes).await.unwrap();
            offer = String::from_utf8_lossy(&bytes[..length]).into_owned();
            !offer.contains("already")
        })
        .await;
        assert!(offer.contains(r#"{"tcp":"127.0.0.1:0"}"#), "{offer}");
        // Nobody else can ask meanwhile.
        let other = order(folder.path(), "hand-over").await;
        assert_eq!(other, json!({ "error": "another process is taking over already" }));
        socket.write_all(said.as_bytes()).await.unwrap();
    }

    let client = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    assert_eq!(count(&client).await, 0);
    let _successor = upgrade(folder.path()).await;
    assert!(ends_while_asked(&mut hub.process, &client).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_paused_or_told_to_end_is_not_followed() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let mut hub = HubProgram::start(folder.path(), &servers.uri(""), &[], CONTROL);
    assert_eq!(order(folder.path(), "pause").await["paused"], true);
    let refused = order(folder.path(), "hand-over").await;
    assert!(refused["error"].as_str().unwrap().starts_with("the hub is paused"), "{refused}");
    assert_eq!(order(folder.path(), "resume").await["paused"], false);
    let mut socket = BufReader::new(UnixStream::connect(folder.path().join("control.sock")).await.unwrap());
    socket.write_all(b"hand-over\n").await.unwrap();
    socket.read_line(&mut String::new()).await.unwrap();

    let drains = order(folder.path(), "drain").await;
    let mut answer = Vec::new();
    socket.read_until(b'\n', &mut answer).await.unwrap();

    assert_eq!(drains["draining"], true);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("the hub was told to end, and ends"), "{answer}");
    assert!(ends(&mut hub.process).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_drains_refuses_what_drivers_repeat_and_finishes_the_rest_x_189() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").drain_seconds(60).start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}, {}, {}] })).await.unwrap();
    let mut idle = client.check_out().await.unwrap();
    let mut reader = client.check_out().await.unwrap();
    let opened = ask(&mut reader, "test", rawdoc! { "find": "c", "batchSize": 2 }).await;
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let draining = tokio::spawn(house.hub.drain(std::future::pending()));
    // What is refused when is a matter of `line/draining.rs`. A client that is late is hung up on.
    eventually("it drains", async || match idle.run_command("test", rawdoc! { "find": "c" }).await {
        Ok(_) => false,
        Err(CommandError { kind: CommandErrorKind::Server(refusal), .. }) => {
            assert_eq!(refusal.code, Some(91));
            true
        }
        Err(_) => true,
    })
    .await;

    let rest = ask(&mut reader, "test", rawdoc! { "getMore": cursor, "collection": "c" }).await;

    assert_eq!(code(&rest), None);
    assert_eq!(draining.await.unwrap(), 0, "all have finished");
}

/// What a line of the unit runs, with this program and a configuration of the test.
fn of_unit(key: &str, config: &Path) -> Command {
    let unit = include_str!("../../systemd/cmap-hub.service");
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/cmap-hub"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
    let config = config.to_str().unwrap();
    command.args(words.map(|word| if word == "/etc/cmap-hub/cmap-hub.toml" { config } else { word }));
    command.env("RUST_LOG", "error").stdout(Stdio::null());
    command
}

/// What a service manager hears next.
fn heard(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let length = manager.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_manager_runs_the_unit_opens_its_listener_and_hears_how_the_hub_is() {
    let (servers, folder) = (Servers::single().await, tempfile::tempdir().unwrap());
    let manager = UnixDatagram::bind(folder.path().join("notify.sock")).unwrap();
    manager.set_read_timeout(Some(SOON)).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = folder.path().join("cmap-hub.toml");
    let text = format!("upstream.uri = '{}'\nlisten = [{{ address = '{address}' }}]\n{CONTROL}", servers.uri(""));
    fs::write(&config, text).unwrap();
    assert!(of_unit("ExecStartPre", &config).status().unwrap().success());
    let mut command = of_unit("ExecStart", &config);
    command.env("LISTEN_FDS", "1").env("NOTIFY_SOCKET", folder.path().join("notify.sock"));
    command.fd_mappings(vec![FdMapping { parent_fd: socket.into(), child_fd: 3 }]).unwrap();

    let mut hub = Program(command.spawn().unwrap());
    // The manager's socket is the command's.
    drop(command);
    let started = heard(&manager);
    let client = Client::connect(&format!("mongodb://{address}/?loadBalanced=true")).await.unwrap();
    assert_eq!(count(&client).await, 0);
    Command::new("kill").arg("-HUP").arg(hub.0.id().to_string()).status().unwrap();
    let (reloads, reloaded) = (heard(&manager), heard(&manager));
    assert!(of_unit("ExecReload", &config).status().unwrap().success());
    let successor = upgrade(folder.path()).await;
    let upgraded = heard(&manager);
    assert!(ends_while_asked(&mut hub, &client).await);
    assert_eq!(count(&client).await, 0);
    Command::new("kill").arg("-TERM").arg(successor.0.to_string()).status().unwrap();
    let ends = heard(&manager);

    assert_eq!(started, format!("MAINPID={}\nREADY=1\n", hub.0.id()));
    assert!(reloads.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloads}");
    assert_eq!(reloaded, "READY=1\n");
    assert_eq!(upgraded, format!("MAINPID={}\nREADY=1\n", successor.0));
    assert_eq!(ends, "STOPPING=1\n");
}
