//! The end of cases that not even their own limit can end.
//!
//! A case has a limit, which its executor enforces. A case that keeps the executor's thread forever, by a lock or a
//! loop, is ended with the whole program, by a thread that names the case.

use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::LIMIT;

/// How long an executor may take to notice that a case has exceeded its limit, and the case to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Watches over a case until it is dropped.
pub(super) struct Watch(#[expect(dead_code, reason = "its end ends the watch")] Sender<()>);

impl Watch {
    /// Watches over the case that runs on this thread, which bears its name.
    pub(super) fn start() -> Self {
        let (case, end) = channel();
        let name = thread::current().name().unwrap_or("a case").to_owned();
        thread::spawn(move || watch(&name, &end));
        Self(case)
    }
}

fn watch(name: &str, end: &Receiver<()>) {
    if end.recv_timeout(LIMIT + PATIENCE) == Err(RecvTimeoutError::Timeout) {
        eprintln!("{name} hangs, and keeps its thread: the tests are given up after {:?}", LIMIT + PATIENCE);
        process::exit(101);
    }
}
