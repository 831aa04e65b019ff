//! What an operator may ask of the hub's program while it runs: the level of its log, and a new process in its place. The program says how
//! that is done.

use core::fmt;
use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;

/// Sets a filter, or says why it cannot be one.
type SetLogLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Starts a process that takes the listeners over at this control socket.
type StartSuccessor = Box<dyn Fn(&Path) -> io::Result<Child> + Send + Sync>;

/// The hub's program. What it has said first stays.
#[derive(Default)]
pub(super) struct Program {
    set_log_level: OnceLock<SetLogLevel>,
    start_successor: OnceLock<StartSuccessor>,
}

impl Program {
    pub(super) fn on_log_level(&self, set: SetLogLevel) {
        // A second one would be another program's.
        let _ = self.set_log_level.set(set);
    }

    pub(super) fn on_upgrade(&self, start: StartSuccessor) {
        let _ = self.start_successor.set(start);
    }

    /// Logs by this filter from now on.
    ///
    /// # Errors
    /// It is no filter, or nobody has said how to set one.
    pub(super) fn set_log_level(&self, filter: &str) -> Result<(), String> {
        let set = self.set_log_level.get();
        set.map_or_else(|| Err("the program of this hub lets nobody set its log".into()), |set| set(filter))
    }

    /// Starts a new process.
    ///
    /// # Errors
    /// It cannot be started, or nobody has said how.
    pub(super) fn start_successor(&self, control: &Path) -> Result<Child, String> {
        let start = self.start_successor.get();
        let start = start.ok_or("the program of this hub starts no new process; start one with --take-over")?;
        start(control).map_err(|error| format!("the new process cannot be started: {error}"))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}
