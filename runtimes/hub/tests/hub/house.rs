//! A hub in front of servers, and clients of it.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use cmap_core::wire::CommandReply;
use cmap_hub::config;
use cmap_hub::hub::{Hub, Reloaded};
use cmap_hub::users::{self, NewUser};
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use cmap_tokio::{Client, CommandErrorKind, Connection, OperationError};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::servers::Servers;

/// How long something may take that has to happen, on a machine that has much else to do. After a minute upstream ends transactions
/// itself.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A hub, and the folder of its files.
pub(crate) struct House {
    pub(crate) hub: Hub,
    pub(crate) folder: TempDir,
    text: String,
}

/// The configuration of a hub.
#[derive(Default)]
pub(crate) struct Plan {
    uri: String,
    users: Vec<NewUser>,
    rules: String,
    first: String,
    upstream: String,
    more: String,
    has_status: bool,
    drain_seconds: Option<u64>,
}

impl Plan {
    /// In front of these servers, with options upstream.
    pub(crate) fn before(servers: &Servers, query: &str) -> Self {
        Self::at(&servers.uri(query))
    }

    /// In front of what a connection string names.
    pub(crate) fn at(uri: &str) -> Self {
        Self { uri: uri.to_owned(), ..Self::default() }
    }

    /// With a user whose password is `secret`; `rules` are lines of the users file.
    pub(crate) fn user(mut self, name: &str, rules: &str) -> Self {
        self.users.push(NewUser { name: name.into(), password: "secret".into(), upstream: None });
        // Rules belong to the user that was written last.
        writeln!(self.rules, "{name}\t{}", rules.replace('\n', "\u{1}")).unwrap();
        self
    }

    /// With further lines of the configuration.
    pub(crate) fn more(mut self, lines: &str) -> Self {
        self.more.push_str(lines);
        self.more.push('\n');
        self
    }

    /// With further lines of its table `upstream`.
    pub(crate) fn upstream(mut self, lines: &str) -> Self {
        self.upstream.push_str(lines);
        self.upstream.push('\n');
        self
    }

    /// With lines before the configuration's first table.
    pub(crate) fn first(mut self, lines: &str) -> Self {
        self.first.push_str(lines);
        self.first.push('\n');
        self
    }

    /// With a status page.
    pub(crate) fn status(mut self) -> Self {
        self.has_status = true;
        self
    }

    /// With other `drain-seconds` than two.
    pub(crate) fn drain_seconds(mut self, seconds: u64) -> Self {
        self.drain_seconds = Some(seconds);
        self
    }

    pub(crate) async fn start(self) -> House {
        let folder = tempfile::tempdir().unwrap();
        let mut text = self.first.clone();
        if !self.users.is_empty() {
            text.push_str("users = 'users.toml'\n");
            write_users(&folder, &self.users, &self.rules);
        }
        let drain_seconds = self.drain_seconds.unwrap_or(2);
        writeln!(text, "drain-seconds = {drain_seconds}\n[upstream]\nuri = '{}'\n{}", self.uri, self.upstream).unwrap();
        text.push_str("[[listen]]\naddress = '127.0.0.1:0'\n");
        if self.has_status {
            text.push_str("[status]\naddress = '127.0.0.1:0'\n");
        }
        text.push_str(&self.more);
        let path = folder.path().join("hub.toml");
        std::fs::write(&path, &text).unwrap();
        let hub = Hub::start(config::read(&path).unwrap()).await.unwrap();
        House { hub, folder, text }
    }
}

fn write_users(folder: &TempDir, new: &[NewUser], rules: &str) {
    let path = folder.path().join("users.toml");
    for (user, rules) in new.iter().zip(rules.lines()) {
        users::add(&path, user).unwrap();
        let rules = rules.split_once('\t').unwrap().1.replace('\u{1}', "\n");
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{before}{rules}\n")).unwrap();
    }
}

impl House {
    /// The connection string of a client without a login.
    pub(crate) fn uri(&self, query: &str) -> String {
        format!("mongodb://{}/?loadBalanced=true&{query}", self.hub.addresses()[0])
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with("").await
    }

    pub(crate) async fn client_with(&self, query: &str) -> Client {
        Client::connect(&self.uri(query)).await.unwrap()
    }

    /// A client that logs in.
    pub(crate) async fn client_as(&self, user: &str, query: &str) -> Client {
        let uri = format!("mongodb://{user}:secret@{}/?loadBalanced=true&{query}", self.hub.addresses()[0]);
        Client::connect(&uri).await.unwrap()
    }

    /// A socket to it, on which nothing was said yet.
    pub(crate) async fn socket(&self) -> TcpStream {
        TcpStream::connect(self.hub.addresses()[0]).await.unwrap()
    }

    /// A page of the status: status line and body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(self.hub.status_address().unwrap(), path).await
    }

    /// What its status says, if it has one.
    pub(crate) async fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.get("/status.json").await.1).unwrap()
    }

    /// Waits until so many commands of this name are at a server. The status lists others, too: those that wait, and those whose client
    /// has just had the reply.
    pub(crate) async fn until_at_server(&self, command: &str, count: usize) {
        eventually("the command is at a server", async || {
            let report = self.report().await;
            let running = report["running"].as_array().unwrap().iter();
            running.filter(|line| line["command"] == command && line["at"] == "server").count() == count
        })
        .await;
    }

    /// Begins a [`slow`] command of a client, which has a server when this returns. The house needs a status.
    pub(crate) async fn begin_slow(&self, client: &Client) -> JoinHandle<Result<(), OperationError>> {
        let client = client.clone();
        let running =
            tokio::spawn(async move { client.operation(("test", slow())).on(Writable).run().await.map(drop) });
        self.until_at_server("find", 1).await;
        running
    }

    /// Writes the configuration anew, with `change` made to its text, and has the hub read it.
    pub(crate) async fn reload(&self, change: impl FnOnce(&str) -> String) -> Reloaded {
        std::fs::write(self.folder.path().join("hub.toml"), change(&self.text)).unwrap();
        self.hub.read_again().await.unwrap()
    }
}

/// A page of `docs/hub`; none in a package, which has no such pages.
pub(crate) fn page(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hub");
    if !folder.exists() {
        println!("skipped: {name} is not in the package");
        return None;
    }
    Some(std::fs::read_to_string(folder.join(name)).unwrap())
}

/// A page of a server: status line and body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Gives an order at the control socket `control.sock` of a folder; the answer.
#[cfg(unix)]
pub(crate) async fn order(folder: &Path, line: &str) -> serde_json::Value {
    let mut socket = tokio::net::UnixStream::connect(folder.join("control.sock")).await.unwrap();
    socket.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::io::BufReader::new(socket).read_line(&mut answer).await.unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Runs a command, which may fail: its reply, whatever that says.
pub(crate) async fn ask(connection: &mut Connection, database: &str, command: RawDocumentBuf) -> RawDocumentBuf {
    match connection.run_command(database, command).await {
        Ok(reply) => RawDocument::to_owned(&reply),
        Err(error) => {
            assert!(matches!(error.kind, CommandErrorKind::Server(_)), "{error}");
            let reply = connection.last_reply().unwrap();
            RawDocument::to_owned(&reply)
        }
    }
}

/// A command that takes a minute of the servers' time for each document of the collection, so that it ends when a test says so: by
/// [`Servers::pass_until`].
pub(crate) fn slow() -> RawDocumentBuf {
    rawdoc! { "find": "c", "filter": { "$where": "sleep(60000) || true" } }
}

/// Documents with the ids from 0 on.
pub(crate) fn numbered(count: i32) -> RawArrayBuf {
    let mut documents = RawArrayBuf::new();
    (0..count).for_each(|id| documents.push(rawdoc! { "_id": id }));
    documents
}

/// The code of an error; `None` if it succeeded.
pub(crate) fn code(reply: &RawDocument) -> Option<i32> {
    CommandReply::read(reply).failure().map(|error| error.code.unwrap())
}

/// Waits until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
