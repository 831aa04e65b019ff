//! How the program ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
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

    let signalled = Command::new("kill").arg("-TERM").arg(process.0.id().to_string()).status().unwrap();

    assert!(signalled.success());
    #[allow(clippy::disallowed_methods, reason = "a process has no virtual time")]
    let begun = Instant::now();
    let status = loop {
        assert!(begun.elapsed() < SOON, "it goes on");
        match process.0.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success() && process.0.stdin.is_some(), "{status}");
}
