//! The program as a process, between an application and a member that the test plays on sockets.

#![cfg(unix)]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

mod blocking;
#[cfg(target_os = "linux")]
mod listening;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cmap_core::reverse::{ApplicationOutput, Ending};
use tempfile::TempDir;

use crate::blocking::{Application, SECRET};

/// An application, a member, and a folder with the relay's files.
struct World {
    folder: TempDir,
    application: Application,
    member: TcpListener,
}

impl World {
    fn new() -> Self {
        Self::of(Application::new())
    }

    fn of(application: Application) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), &application.authority).unwrap();
        fs::write(folder.path().join("token"), SECRET).unwrap();
        let world = Self { folder, application, member: TcpListener::bind("127.0.0.1:0").unwrap() };
        let (application, member) = (world.application.address(), world.member.local_addr().unwrap());
        world.write_config(&format!(
            "[[members]]\nname = \"db1.example:27017\"\nconnect = \"{member}\"\n\n\
             [[applications]]\naddress = \"{application}\"\ntlsCAFile = \"ca.pem\"\n\
             token = {{ name = \"db1\", secret = {{ file = \"token\" }} }}\n"
        ));
        world
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("relay.toml")
    }

    fn write_config(&self, text: &str) {
        fs::write(self.config(), text).unwrap();
    }

    fn check(&self) -> Output {
        program(&self.config()).arg("--check").output().unwrap()
    }
}

/// The program, running.
struct Relay(Child);

impl Relay {
    fn start(world: &World) -> Self {
        Self(program(&world.config()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let told = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// Waits for the end: the exit status, and the log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.0.wait().unwrap().code(), log)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(config: &Path) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cmap-relay"));
    program.arg(config).env_remove("NOTIFY_SOCKET");
    program
}

#[test]
fn check_says_what_the_relay_would_do() {
    let world = World::new();

    let output = world.check();

    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let (application, member) = (world.application.address(), world.member.local_addr().unwrap());
    assert!(told.contains("relay.toml is in order"), "{told}");
    assert!(told.contains(&format!("db1.example:27017, reached at {member}")), "{told}");
    let dialled =
        format!("{application} for db1.example:27017; proves itself by token \"db1\" (file token); trusts ca.pem");
    assert!(told.contains(&dialled), "{told}");
    assert!(!told.contains(SECRET), "{told}");
}

#[test]
fn check_of_a_config_with_a_mistake_names_file_and_key() {
    let world = World::new();
    world.write_config("[[members]]\nname = \"db1.example:27017\"\nhost = \"127.0.0.1\"\n");

    let output = world.check();

    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("relay.toml: members[0].host: unknown field `host`"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_started_socket_is_spliced_and_sigterm_waits_for_its_end_x_129() {
    let world = World::new();
    let relay = Relay::start(&world);
    let mut connection = world.application.park().start();
    let (mut member, _) = world.member.accept().unwrap();
    connection.write_all(b"question").unwrap();
    let mut asked = [0; 8];
    member.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"question");
    let mut parked = world.application.park();

    relay.signal("-TERM");
    let ApplicationOutput::Close(ending) = parked.next() else { panic!("the parked socket does not end") };
    assert_eq!(ending, Ending::PeerLeaves);
    member.write_all(b"answer").unwrap();
    let mut answered = [0; 6];
    connection.read_exact(&mut answered).unwrap();
    assert_eq!(&answered, b"answer");
    drop((connection, member));

    let (status, log) = relay.end();
    assert_eq!(status, Some(0), "{log}");
    for told in ["relaying", "parked application=", "member=db1.example:27017", "draining in_use=1", "drained"] {
        assert!(log.contains(told), "{told:?} is missing in {log}");
    }
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn a_second_signal_ends_at_once() {
    let world = World::new();
    let mut relay = Relay::start(&world);
    let _connection = world.application.park().start();
    let _member = world.member.accept().unwrap();
    let mut parked = world.application.park();
    relay.signal("-INT");
    let ApplicationOutput::Close(Ending::PeerLeaves) = parked.next() else { panic!("the parked socket does not end") };
    let start = Instant::now();

    relay.signal("-INT");

    let status = relay.0.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_stop_that_cuts_connections_is_a_success_for_the_unit() {
    let world = World::new();
    let config = fs::read_to_string(world.config()).unwrap() + "\n[limits]\ndrainTimeoutMS = 50\n";
    world.write_config(&config);
    let relay = Relay::start(&world);
    let _connection = world.application.park().start();
    let _member = world.member.accept().unwrap();

    relay.signal("-TERM");

    let (status, log) = relay.end();
    assert_eq!(status, Some(1), "{log}");
    let unit = include_str!("../cmap-relay.service");
    assert!(unit.lines().any(|line| line == "SuccessExitStatus=1"), "{unit}");
}

#[test]
fn the_service_manager_is_told() {
    let world = World::new();
    let path = world.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let relay = Relay(program(&world.config()).env("NOTIFY_SOCKET", &path).stderr(Stdio::piped()).spawn().unwrap());
    let mut buffer = [0; 64];

    let read = manager.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..read], b"READY=1\n");
    relay.signal("-TERM");
    let read = manager.recv(&mut buffer).unwrap();

    assert_eq!(&buffer[..read], b"STOPPING=1\n");
    assert_eq!(relay.end().0, Some(0));
}

#[test]
fn an_application_that_does_not_listen_is_told_of_and_dialled_again() {
    let world = World::new();
    let address = world.application.address();
    // Nobody accepts there: what is dialled waits in the backlog, and its TLS takes too long.
    let config = fs::read_to_string(world.config()).unwrap() + "\n[limits]\nconnectTimeoutMS = 50\n";
    world.write_config(&config);
    let mut relay = Relay::start(&world);
    let log = BufReader::new(relay.0.stderr.take().unwrap());

    let told: Vec<_> =
        log.lines().map(Result::unwrap).filter(|line| line.contains("cannot be reached")).take(2).collect();

    assert_eq!(told.len(), 2);
    let told_why = told[0].contains(&format!("{address} was not connected within 50ms; check the network between"));
    assert!(told_why, "{}", told[0]);
}

#[test]
fn an_application_that_refuses_the_relays_certificate_is_told_of() {
    let world = World::of(Application::that_demands_certificates());
    let mut relay = Relay::start(&world);
    let log = BufReader::new(relay.0.stderr.take().unwrap());
    // For the relay TLS has begun when the application misses its certificate.
    let mut socket = world.application.accept();
    let refusal = socket.read(&mut [0; 1024]).unwrap_err();
    assert!(refusal.to_string().contains("peer sent no certificates"), "{refusal}");

    let told = log.lines().map(Result::unwrap).find(|line| line.contains("before it was parked")).unwrap();

    assert!(told.contains("WARN") && told.contains("CertificateRequired"), "{told}");
}

#[test]
fn a_limit_of_sockets_that_is_passed_again_and_again_does_not_fill_the_log() {
    let world = World::new();
    let config = fs::read_to_string(world.config()).unwrap() + "\n[limits]\nmaxSockets = 1\n";
    world.write_config(&config);
    let relay = Relay::start(&world);
    let start = Instant::now();

    for _ in 0..20 {
        let mut connection = world.application.park().start();
        let (mut member, _) = world.member.accept().unwrap();
        // One that the member has answered costs no pause.
        member.write_all(b"answer").unwrap();
        connection.read_exact(&mut [0; 6]).unwrap();
    }

    relay.signal("-TERM");
    let (_, log) = relay.end();
    let ten_seconds = usize::try_from(start.elapsed().as_secs() / 10).unwrap();
    let told = log.lines().filter(|line| line.contains("limits.maxSockets")).count();
    assert!((1..=1 + ten_seconds).contains(&told), "{told} lines:\n{log}");
}

#[test]
fn a_member_that_is_down_does_not_fill_the_log() {
    let mut world = World::new();
    let relay = Relay::start(&world);
    let address = world.member.local_addr().unwrap();
    // The port is free no longer, and nobody listens there.
    world.member = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();

    for _ in 0..20 {
        let ApplicationOutput::Close(Ending::StartFailed(_)) = world.application.park().try_start() else {
            panic!("the member is connected")
        };
    }

    relay.signal("-TERM");
    let (_, log) = relay.end();
    let ten_seconds = usize::try_from(start.elapsed().as_secs() / 10).unwrap();
    let told = log.lines().filter(|line| line.contains("the member cannot be reached")).count();
    assert!((1..=1 + ten_seconds).contains(&told), "{told} lines for {address}:\n{log}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_relay_listens_nowhere() {
    let world = World::new();
    let relay = Relay::start(&world);
    let _used = world.application.park().start();
    let _parked = world.application.park();

    let relays = listening::listening(relay.0.id());

    assert_eq!(relays, []);
    let others = listening::listening(std::process::id());
    assert!(others.contains(&world.application.address()), "the application listens: {others:?}");
}
