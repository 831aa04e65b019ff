//! What is told between the processes, and to people.

use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::worker::Tally;

/// How soon something has to happen.
const SOON: Duration = Duration::from_secs(10);

/// An address that nobody listens at.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A page of the hub's status.
pub(crate) fn get(address: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Tells the process that has started this one.
pub(crate) fn write_line(tally: &Tally) {
    println!("{}", serde_json::to_string(tally).unwrap());
}

/// `None` if the process has ended without a word.
pub(crate) fn read_line(out: &mut impl BufRead) -> Option<Tally> {
    let mut line = String::new();
    out.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// Waits until it is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(why) = is_so() {
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}: {why}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Prints what was done.
pub(crate) fn print(tally: &Tally, took: Duration, work: Duration, resident: u64, accepted: usize) {
    let Tally { commands, cursors, transactions, repeated, slowest, .. } = tally;
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = *commands as f64;
    println!(
        "{commands} commands in {took:.1?}: {:.0} a second, the slowest in {slowest:.1?}",
        count / took.as_secs_f64()
    );
    println!("{cursors} cursors and {transactions} transactions among them; repeated, by code: {repeated:?}");
    println!(
        "the hub worked {:.1} µs for a command and had {} MiB at the end; upstream has accepted {accepted} connections",
        work.as_secs_f64() * 1e6 / count,
        resident >> 20,
    );
}
