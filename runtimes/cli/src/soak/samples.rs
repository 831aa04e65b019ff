//! Samples of a process's resources: memory, descriptors, tasks, connections.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The resources of an adapter's process. Unknown figures are `None`: memory and descriptors are read from Linux's
/// `/proc`, and a server of the user's has other clients, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figures {
    /// Its resident memory that is no file's (`RssAnon`), in bytes.
    pub(crate) memory: Option<u64>,
    /// Its open descriptors.
    pub(crate) descriptors: Option<u64>,
    /// Its tasks that are not over, as the soak counts them.
    pub(crate) tasks: u64,
    /// Tasks that are not over, as the runtime counts them; only tokio does.
    pub(crate) runtime_tasks: Option<u64>,
    /// The pool's connections.
    pub(crate) connections: u64,
    /// All connections that the server has.
    pub(crate) server_connections: Option<u64>,
}

/// The figures at a moment of the soak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Time since the tasks began.
    pub(crate) at: Duration,
    /// The resources of the process.
    pub(crate) figures: Figures,
    /// Operations that had ended.
    pub(crate) operations: u64,
    /// Connections that were in use.
    pub(crate) in_use: u32,
    /// Check-outs that waited.
    pub(crate) waiting: u32,
}

/// This process's memory, see [`Figures::memory`].
pub(super) fn memory() -> Option<u64> {
    memory_in(&fs::read_to_string("/proc/self/status").ok()?)
}

/// This process's open descriptors, the one that counts them included.
pub(super) fn descriptors() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    u64::try_from(entries.count()).ok()
}

fn memory_in(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(1024 * kilobytes)
}

#[cfg(test)]
mod tests {
    use super::memory_in;

    #[test]
    fn memory_is_the_anonymous_part() {
        let status = "Name:\tcmap\nVmRSS:\t   20480 kB\nRssAnon:\t    1024 kB\nRssFile:\t   19456 kB\n";

        assert_eq!(memory_in(status), Some(1 << 20));
    }

    #[test]
    fn a_status_without_it_says_nothing() {
        assert_eq!(memory_in("Name:\tcmap\n"), None);
    }
}
