//! `cmap serve` as a process, with this project's client over real sockets.

use core::time::Duration;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::thread;

use cmap_core::connection::{
    ClientMetadata, Command, Connection, ConnectionOptions, Establish, EstablishError, Fault, Progress,
};
use cmap_core::options::{Credential, Mechanism};
use cmap_core::wire::bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::wire::{Compression, ZlibLevel};

/// The program, serving; it ends with its standard input.
struct Server {
    process: Child,
    /// Of the first member.
    address: String,
    /// Of all members.
    addresses: Vec<String>,
}

/// A connection of ours, with its socket.
struct Client {
    socket: TcpStream,
    connection: Connection,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::start_members(1, args)
    }

    /// A deployment of so many servers.
    fn start_members(count: usize, args: &[&str]) -> Self {
        let mut process = Program::new(env!("CARGO_BIN_EXE_cmap"))
            .args(["serve", "--port", "0", "--until-stdin-ends"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().take(count).map(Result::unwrap);
        let addresses: Vec<_> = lines.map(|line| line.strip_prefix("listening on ").unwrap().to_string()).collect();
        Self { process, address: addresses[0].clone(), addresses }
    }

    fn connect(&self, options: &ConnectionOptions) -> Result<Client, EstablishError> {
        self.connect_to(0, options)
    }

    fn connect_to(&self, member: usize, options: &ConnectionOptions) -> Result<Client, EstablishError> {
        let mut socket = TcpStream::connect(&self.addresses[member]).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut establish = Establish::new(Arc::new(options.clone()), [7; 24])?;
        let mut progress = Progress::Exchange;
        loop {
            progress = match progress {
                Progress::Established => return Ok(Client { socket, connection: establish.finish().unwrap() }),
                Progress::Derive(keys) => establish.handle_keys(&keys.run())?,
                Progress::Token => panic!("no login here takes a token"),
                Progress::Exchange => {
                    let mut out = Vec::new();
                    establish.write_to(&mut out);
                    socket.write_all(&out).unwrap();
                    establish.handle_bytes(&receive(&mut socket))?
                }
            };
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input is the end of the server.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl Client {
    fn send(&mut self, database: &str, command: &RawDocument) {
        let mut out = Vec::new();
        self.connection.send(&mut out, &Command::new(database, command)).unwrap();
        self.socket.write_all(&out).unwrap();
    }

    fn receive(&mut self) -> RawDocumentBuf {
        loop {
            let bytes = receive(&mut self.socket);
            assert!(!bytes.is_empty(), "the server hung up");
            if let Some(reply) = self.connection.read(&mut &bytes[..]).unwrap() {
                return reply.body.to_owned();
            }
        }
    }

    fn run(&mut self, database: &str, command: &RawDocument) -> RawDocumentBuf {
        self.send(database, command);
        self.receive()
    }
}

fn receive(socket: &mut TcpStream) -> Vec<u8> {
    let mut buffer = vec![0; 64 * 1024];
    let count = socket.read(&mut buffer).unwrap();
    buffer.truncate(count);
    buffer
}

fn anonymous() -> ConnectionOptions {
    ConnectionOptions::new(ClientMetadata::new("Linux"))
}

fn login(mechanism: Mechanism, password: &str, source: &str) -> ConnectionOptions {
    let mut options = anonymous();
    let credential = Credential::new("user", password.into(), source).with_mechanism(mechanism);
    options.credential = Some(Arc::new(credential));
    options
}

/// What is there after a while.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = (0..3_000).find_map(|_| {
        thread::sleep(Duration::from_millis(20));
        look()
    });
    found.unwrap_or_else(|| panic!("{what}: not within a minute"))
}

#[test]
fn a_user_of_the_command_line_logs_in_by_every_mechanism() {
    let server = Server::start(&["--auth", "user:pen:cil"]);
    for (mechanism, source) in
        [(Mechanism::ScramSha256, "admin"), (Mechanism::ScramSha1, "admin"), (Mechanism::Plain, "$external")]
    {
        let mut client = server.connect(&login(mechanism, "pen:cil", source)).unwrap();
        assert_eq!(client.run("admin", &rawdoc! { "getCmdLineOpts": 1 }).get_f64("ok").unwrap(), 1.0);

        let wrong = server.connect(&login(mechanism, "pen", source)).err().unwrap();
        assert_eq!(wrong.fault, Fault::Server { code: Some(18) });
    }
    let mut stranger = server.connect(&anonymous()).unwrap();
    assert_eq!(stranger.run("db", &rawdoc! { "find": "c" }).get_i32("code").unwrap(), 13);
}

#[test]
fn options_of_the_command_line_reach_the_hello() {
    let server = Server::start(&["--replica-set", "rs0", "--load-balanced", "--compressors", "zlib"]);
    let mut options = anonymous();
    options.load_balanced = true;
    options.compressors = vec![Compression::Snappy, Compression::Zlib(ZlibLevel::DEFAULT)];

    let mut client = server.connect(&options).unwrap();

    assert!(client.connection.description().service_id.is_some());
    assert_eq!(client.connection.description().compressors.len(), 1);
    let hello = client.run("admin", &rawdoc! { "hello": 1 });
    assert_eq!(hello.get_str("setName").unwrap(), "rs0");
    assert_eq!(hello.get_str("me").unwrap(), server.address);
}

#[test]
fn members_of_a_set_have_ports_of_their_own_and_share_documents() {
    let server = Server::start_members(3, &["--replica-set", "rs0", "--members", "3", "--tags", "1=dc:ny"]);
    let (mut primary, mut secondary) =
        (server.connect(&anonymous()).unwrap(), server.connect_to(1, &anonymous()).unwrap());

    let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 3 } };
    assert_eq!(primary.run("db", &insert).get_i32("n").unwrap(), 1);

    let count = rawdoc! { "count": "c", "$readPreference": { "mode": "secondary" } };
    assert_eq!(secondary.run("db", &count).get_i32("n").unwrap(), 1);
    let hello = secondary.run("admin", &rawdoc! { "hello": 1 });
    assert_eq!(hello.get_str("primary").unwrap(), server.address);
    assert_eq!(hello.get_str("me").unwrap(), server.addresses[1]);
    assert_eq!(hello.get_document("tags").unwrap().get_str("dc").unwrap(), "ny");
    let hosts: Vec<_> = hello.get_array("hosts").unwrap().into_iter().map(|it| it.unwrap().as_str().unwrap()).collect();
    assert_eq!(hosts, server.addresses);
}

#[test]
fn a_member_that_is_killed_is_replaced_and_listens_again_when_it_is_back() {
    let server = Server::start_members(3, &["--replica-set", "rs0", "--members", "3", "--election-timeout", "50"]);
    let mut primary = server.connect(&anonymous()).unwrap();
    let mut other = server.connect_to(1, &anonymous()).unwrap();
    let order = |what: &str| rawdoc! { "testDeployment": what, "member": server.address.as_str() };
    let hello = rawdoc! { "hello": 1, "maxAwaitTimeMS": 20_000 };
    let mut known = other.run("admin", &rawdoc! { "hello": 1 }).get_document("topologyVersion").unwrap().to_owned();

    assert_eq!(primary.run("admin", &order("kill")).get_f64("ok").unwrap(), 1.0);

    let mut bytes = [0; 1];
    assert!(matches!(primary.socket.read(&mut bytes), Ok(0) | Err(_)), "it hangs up");
    loop {
        let mut awaiting = hello.clone();
        awaiting.append(cmap_core::wire::bson::cstr!("topologyVersion"), known);
        let reply = other.run("admin", &awaiting);
        known = reply.get_document("topologyVersion").unwrap().to_owned();
        if reply.get_bool("isWritablePrimary").unwrap() {
            break;
        }
    }
    eventually("nobody listens", || TcpStream::connect(&server.address).err());

    other.run("admin", &order("restart"));
    eventually("it listens", || TcpStream::connect(&server.address).ok());
    let reply = server.connect(&anonymous()).unwrap().run("admin", &rawdoc! { "hello": 1 });
    assert!(reply.get_bool("secondary").unwrap());
}

#[test]
fn two_mongos_have_the_same_documents() {
    let server = Server::start_members(2, &["--sharded", "2"]);
    let mut clients = [0, 1].map(|member| server.connect_to(member, &anonymous()).unwrap());

    clients[0].run("db", &rawdoc! { "insert": "c", "documents": [{}] });

    assert_eq!(clients[1].run("db", &rawdoc! { "count": "c" }).get_i32("n").unwrap(), 1);
    assert_eq!(clients[1].run("admin", &rawdoc! { "hello": 1 }).get_str("msg").unwrap(), "isdbgrid");
}

#[test]
fn a_blocked_connection_delays_no_other() {
    let server = Server::start(&[]);
    let (mut blocked, mut other) = (server.connect(&anonymous()).unwrap(), server.connect(&anonymous()).unwrap());
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 60_000 };
    other.run("admin", &rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data });

    blocked.send("admin", &rawdoc! { "ping": 1 });

    assert_eq!(other.run("admin", &rawdoc! { "buildInfo": 1 }).get_f64("ok").unwrap(), 1.0);
}

#[test]
fn a_delayed_reply_comes() {
    let server = Server::start(&[]);
    let mut client = server.connect(&anonymous()).unwrap();
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 20, "errorCode": 91 };
    client.run("admin", &rawdoc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data });

    assert_eq!(client.run("admin", &rawdoc! { "ping": 1 }).get_i32("code").unwrap(), 91);
}

#[test]
fn many_clients_are_served_at_once() {
    let server = Server::start(&[]);
    thread::scope(|scope| {
        for id in 0..32 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect(&anonymous()).unwrap();
                for number in 0..20 {
                    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 100 * id + number }] };
                    assert_eq!(client.run("db", &insert).get_i32("n").unwrap(), 1);
                }
            });
        }
    });
}

#[test]
fn a_large_document_goes_there_and_back() {
    let server = Server::start(&[]);
    let mut client = server.connect(&anonymous()).unwrap();
    let text = "x".repeat(16 * 1024 * 1024 - 100);
    let document = rawdoc! { "_id": 1, "text": text.as_str() };
    let mut out = Vec::new();
    let body = rawdoc! { "insert": "c" };
    let sequence = [("documents", [&*document])];
    client.connection.send_with_sequences(&mut out, &Command::new("db", &body), sequence).unwrap();
    client.socket.write_all(&out).unwrap();
    assert_eq!(client.receive().get_i32("n").unwrap(), 1);

    let found = client.run("db", &rawdoc! { "find": "c" });

    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.get_document(0).unwrap(), &*document);
}

#[test]
fn limits_of_the_command_line_reach_the_store() {
    let server = Server::start(&["--cursors", "0", "--memory", "1"]);
    let mut client = server.connect(&anonymous()).unwrap();
    let text = "x".repeat(600_000);
    let insert = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id, "text": text.as_str() }] };

    assert_eq!(client.run("db", &insert(1)).get_i32("n").unwrap(), 1);
    assert!(client.run("db", &insert(2)).get_array("writeErrors").is_ok(), "1 MiB is full");
    let find = rawdoc! { "find": "c", "batchSize": 0 };
    assert_eq!(client.run("db", &find).get_i32("code").unwrap(), 146, "no cursor may stay open");
}

#[test]
fn the_help_lists_what_the_server_knows() {
    let output = Program::new(env!("CARGO_BIN_EXE_cmap")).args(["serve", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();

    for name in cmap_test_server::KNOWN.iter().flat_map(|known| known.names) {
        assert!(text.contains(name), "{name}");
    }
    assert!(text.lines().skip_while(|line| !line.starts_with("What it knows")).all(|line| line.len() <= 80), "{text}");
}

#[test]
fn new_connections_are_limited_as_mongodb_8_limits_them() {
    let server = Server::start(&[]);
    let mut admin = server.connect(&anonymous()).unwrap();
    let prefix = "ingressConnectionEstablishment";
    for (name, value) in [("BurstCapacitySecs", 1), ("RatePerSec", 1), ("RateLimiterEnabled", 1)] {
        let mut set = rawdoc! { "setParameter": 1 };
        set.append(cmap_core::wire::bson::raw::CString::try_from(format!("{prefix}{name}")).unwrap(), value);
        assert_eq!(admin.run("admin", &set).get_f64("ok").unwrap(), 1.0);
    }

    let first = server.connect(&anonymous());
    let mut second = TcpStream::connect(&server.address).unwrap();

    assert!(first.is_ok());
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut byte = [0];
    assert!(matches!(second.read(&mut byte), Ok(0) | Err(_)), "it is closed before it says anything");
}

/// The specification's own test of connections that an overloaded server refuses.
#[test]
fn refused_connections_fail_check_outs_and_do_not_clear_the_pool_cmap_50() {
    let server = Server::start(&[]);
    let mut admin = server.connect(&anonymous()).unwrap();
    admin.run("test", &rawdoc! { "insert": "test", "documents": [{}] });
    let prefix = "ingressConnectionEstablishment";
    for (name, value) in [("RatePerSec", 20), ("BurstCapacitySecs", 1), ("MaxQueueDepth", 1), ("RateLimiterEnabled", 1)]
    {
        let mut set = rawdoc! { "setParameter": 1 };
        set.append(cmap_core::wire::bson::raw::CString::try_from(format!("{prefix}{name}")).unwrap(), value);
        assert_eq!(admin.run("admin", &set).get_f64("ok").unwrap(), 1.0);
    }
    let uri = format!("mongodb://{}/?maxConnecting=100", server.address);
    let client = smol::block_on(cmap_smol::Client::connect(&uri)).unwrap();
    // The server is known when the storm begins.
    smol::block_on(client.check_out()).unwrap();

    let find = || async {
        let mut connection = client.check_out().await?;
        let find = rawdoc! { "find": "test", "filter": { "$where": "sleep(500) || true" } };
        connection.run_command("test", find).await?;
        Ok::<_, cmap_smol::Error>(())
    };
    smol::block_on(async {
        let executor = smol::LocalExecutor::new();
        let tasks: Vec<_> = (0..100).map(|_| executor.spawn(find())).collect();
        // Those that are refused say so below.
        executor
            .run(async {
                for task in tasks {
                    let _ = task.await;
                }
            })
            .await;
    });

    let stats = client.stats();
    assert!(stats.check_outs_failed.connection_error >= 10, "{stats:?}");
    assert_eq!(stats.cleared, 0, "{stats:?}");
}

#[test]
fn a_line_of_json_says_where_the_servers_are() {
    let mut process = Program::new(env!("CARGO_BIN_EXE_cmap"))
        .args(["serve", "--port", "0", "--until-stdin-ends", "--json"])
        .args(["--replica-set", "rs0", "--members", "2", "--srv", "cluster.cmap.test"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();

    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();

    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let addresses = told["listening"].as_array().unwrap();
    assert_eq!((addresses.len(), &told["certificates"]), (2, &serde_json::Value::Null));
    assert!(told["dns"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
    assert!(TcpStream::connect(addresses[1].as_str().unwrap()).is_ok());
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
}

#[test]
fn an_option_that_is_wrong_is_told() {
    for (args, text) in [
        (&["--auth", "nocolon"][..], "a colon between them"),
        (&["--compressors", "lz4"], "there is no compressor `lz4`"),
        (&["--members", "3"], "--replica-set"),
        (&["--replica-set", "rs", "--tags", "ny"], "a member's number is needed"),
        (&["--host", "192.0.2.1", "--port", "1"], "choose another --port"),
    ] {
        assert_refused(args, text);
    }
}

#[test]
fn an_option_that_would_have_no_effect_on_the_members_is_refused() {
    for (args, text) in [
        (&["--arbiter"][..], "--arbiter has no effect on fewer than two members"),
        (&["--lag", "10"], "--lag has no effect on fewer than two members"),
        (&["--sharded", "2", "--tags", "0=dc:ny"], "--tags has no effect on fewer than two members"),
        (&["--replica-set", "rs", "--members", "1", "--arbiter"], "--arbiter has no effect on fewer than two members"),
        (&["--replica-set", "rs", "--members", "3", "--tags", "7=dc:ny"], "--tags is for member 7"),
    ] {
        assert_refused(args, text);
    }
}

#[test]
fn servers_beyond_the_last_port_are_refused() {
    assert_refused(&["--port", "65535", "--sharded", "2"], "there is no port 65536");
}

/// Standard input ends at once, and with it a server that was not refused.
fn assert_refused(args: &[&str], text: &str) {
    let mut program = Program::new(env!("CARGO_BIN_EXE_cmap"));
    let output = program.args(["serve", "--until-stdin-ends"]).args(args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(text), "{args:?}: {stderr}");
    assert_eq!(output.status.code(), Some(2), "{args:?}");
}
