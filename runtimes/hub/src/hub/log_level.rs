//! Sets what the log shows while the hub runs. The log is the program's, which says how that is done.

use core::fmt;
use std::sync::OnceLock;

/// Sets a filter, or says why it cannot be one.
type Set = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The level of the program's log.
#[derive(Default)]
pub(super) struct LogLevel(OnceLock<Set>);

impl LogLevel {
    /// It is set in this way. The first one stays.
    pub(super) fn is_set_by(&self, set: Set) {
        // A second one would be another program's.
        let _ = self.0.set(set);
    }

    /// Logs by this filter from now on.
    ///
    /// # Errors
    /// It is no filter, or nobody has said how to set one.
    pub(super) fn set(&self, filter: &str) -> Result<(), String> {
        self.0.get().map_or_else(|| Err("the program of this hub lets nobody set its log".into()), |set| set(filter))
    }
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLevel").finish_non_exhaustive()
    }
}
