//! Clients behind the SOCKS5 proxies that Debian has, microsocks and dante, on each runtime: connections, monitors, and a server that is
//! restarted. What a proxy may do wrong is tried in `runtimes/conformance/src/socks.rs`, with a proxy of our own.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

use std::fs;
use std::future::Future;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_runtime::bson::doc;
use cmap_runtime::{Client, Runtime};

/// How long a proxy may take to begin, and a client to find its server again.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
#[ignore = "full: needs microsocks and danted"]
fn clients_on_tokio_work_behind_other_proxies() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    behind_each::<cmap_tokio::Tokio>(|work| runtime.block_on(work));
}

#[test]
#[ignore = "full: needs microsocks and danted"]
fn clients_on_smol_work_behind_other_proxies() {
    behind_each::<cmap_smol::Smol>(smol::block_on);
}

#[test]
#[ignore = "full: needs microsocks and danted"]
fn clients_on_async_std_work_behind_other_proxies() {
    // async-std has threads of its own.
    behind_each::<cmap_async_std::AsyncStd>(smol::block_on);
}

fn behind_each<R: Runtime>(block_on: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()>>>)) {
    block_on(Box::pin(works_behind::<R>(Proxy::microsocks())));
    block_on(Box::pin(works_behind::<R>(Proxy::dante())));
}

async fn works_behind<R: Runtime>(mut proxy: Proxy) {
    let mut server = LocalServer::start();
    // The proxy looks the name up.
    let uri = server.uri("").replace("127.0.0.1", "localhost");
    let options = "heartbeatFrequencyMS=500&timeoutMS=10000&serverMonitoringMode=poll";
    let client = Client::<R>::connect(&format!("{uri}{}&{options}", proxy.query)).await.unwrap();
    client.run(("admin", doc! { "ping": 1 })).await.unwrap();

    server.kill();
    server.restart();
    // A read, which is repeated.
    client.run(("db", doc! { "count": "coll" })).await.unwrap();

    // Neither the monitor nor a new connection finds another way.
    proxy.stop();
    let runtime = R::current().unwrap();
    let end = runtime.now() + PATIENCE;
    let blamed = loop {
        let description = client.description();
        if let Some(error) = description.servers.iter().find_map(|server| server.error.clone()) {
            break error.to_string();
        }
        assert!(runtime.now() < end, "the monitor does not go through the proxy");
        runtime.sleep_until(runtime.now() + Duration::from_millis(50)).await;
    };
    assert!(blamed.contains("proxy"), "{blamed}");
}

/// A proxy of the system.
struct Proxy {
    process: Child,
    /// What a connection string says of it.
    query: String,
    file: Option<PathBuf>,
}

impl Proxy {
    /// One that asks for a login.
    fn microsocks() -> Self {
        let port = free_port();
        let mut command = Command::new("microsocks");
        command.args(["-i", "127.0.0.1", "-p", &port.to_string(), "-u", "me", "-P", "secret"]);
        Self::start(command, port, "&proxyUsername=me&proxyPassword=secret", None)
    }

    /// One that lets everybody of this machine in.
    fn dante() -> Self {
        let port = free_port();
        let file = std::env::temp_dir().join(format!("cmap-danted-{}-{port}.conf", std::process::id()));
        let everybody = "from: 127.0.0.0/8 to: 0.0.0.0/0";
        let text = format!(
            "internal: 127.0.0.1 port = {port}\nexternal: 127.0.0.1\nsocksmethod: none\nclientmethod: none\n\
             client pass {{ {everybody} }}\nsocks pass {{ {everybody} }}\n"
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new("danted");
        command.arg("-f").arg(&file);
        Self::start(command, port, "", Some(file))
    }

    fn start(mut command: Command, port: u16, login: &str, file: Option<PathBuf>) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        let listens = || {
            sleep(Duration::from_millis(20));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        };
        assert!((0..500).any(|_| listens()), "{command:?} does not listen");
        Self { process, query: format!("proxyHost=127.0.0.1&proxyPort={port}{login}"), file }
    }

    fn stop(&mut self) {
        // With its own processes, which danted has many of.
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
