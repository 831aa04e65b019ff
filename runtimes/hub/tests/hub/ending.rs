//! How the program ends.

use std::fs;
use std::io::{BufRead, BufReader};
#[cfg(unix)]
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::house::SOON;
use super::program::Program;

#[test]
#[cfg(unix)]
fn a_signal_ends_the_program_though_its_standard_input_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cmap-hub.toml");
    fs::write(&config, "upstream.uri = 'mongodb://127.0.0.1:1/'\nlisten = [{ address = '127.0.0.1:0' }]\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
    command.arg("--until-stdin-ends").arg("--config").arg(config).env("RUST_LOG", "error");
    let mut process = Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(process.0.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();

    signal(&process, "-TERM");

    let status = end_of(&mut process);
    assert!(status.success() && process.0.stdin.is_some(), "{status}");
}

#[test]
#[cfg(unix)]
fn a_signal_ends_the_program_while_a_reload_waits_for_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let manager = UnixDatagram::bind(folder.path().join("notify.sock")).unwrap();
    manager.set_read_timeout(Some(SOON)).unwrap();
    let config = folder.path().join("cmap-hub.toml");
    let write = |password: &str| {
        let text = format!(
            "upstream.uri = 'mongodb://hub:{password}@127.0.0.1:1/'\nlisten = [{{ address = '127.0.0.1:0' }}]\n"
        );
        fs::write(&config, text).unwrap();
    };
    write("old");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
    command.arg("--config").arg(&config).env("RUST_LOG", "error").stdout(Stdio::null());
    let mut process = Program(command.env("NOTIFY_SOCKET", folder.path().join("notify.sock")).spawn().unwrap());
    let heard = || {
        let mut buffer = [0; 1024];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(heard().ends_with("READY=1\n"));
    write("new");
    signal(&process, "-HUP");
    assert!(heard().starts_with("RELOADING=1\n"));

    signal(&process, "-TERM");

    let status = end_of(&mut process);
    assert!(status.success(), "{status}");
    assert_eq!(heard(), "STOPPING=1\n", "the reload has not ended before");
}

#[cfg(unix)]
fn signal(process: &Program, signal: &str) {
    assert!(Command::new("kill").arg(signal).arg(process.0.id().to_string()).status().unwrap().success());
}

/// Waits until the program ends.
#[cfg(unix)]
fn end_of(process: &mut Program) -> ExitStatus {
    #[allow(clippy::disallowed_methods, reason = "a process has no virtual time")]
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < SOON, "it goes on");
        match process.0.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
