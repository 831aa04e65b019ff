//! What is told between the processes, and to people.

use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::worker::Tally;

/// How soon something has to happen, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(45);

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

/// For how long others than the clients have worked, and for how many commands of clients, those included that were killed.
pub(crate) struct Costs {
    pub(crate) hub: Duration,
    pub(crate) servers: Duration,
    pub(crate) commands: u64,
}

impl Costs {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            hub: self.hub.saturating_sub(before.hub),
            servers: self.servers.saturating_sub(before.servers),
            commands: self.commands - before.commands,
        }
    }
}

/// Prints what was done.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn print(tally: &Tally, took: Duration, costs: &Costs, resident: u64, accepted: usize) {
    let Tally { commands, cursors, transactions, refused, repeated, slowest, work, .. } = tally;
    let each = |work: Duration, count: u64| work.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{commands} commands in {took:.1?}: {:.0} a second, {refused} of them refused; the slowest, {}, took {:.1?}",
        *commands as f64 / took.as_secs_f64(),
        slowest.1,
        slowest.0,
    );
    println!("{cursors} cursors and {transactions} transactions among them; repeated, by code: {repeated:?}");
    println!(
        "work for a command: the hub {:.1} µs, its client {:.1} µs, the servers {:.1} µs; the hub had {} MiB at the end; upstream has \
         accepted {accepted} connections",
        each(costs.hub, costs.commands),
        each(*work, *commands),
        each(costs.servers, costs.commands),
        resident >> 20,
    );
}
