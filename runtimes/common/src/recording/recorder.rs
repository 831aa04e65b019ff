//! What users ask for: how much is recorded, and when a file is written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::pool::CheckOutFailedReason;
use cmap_core::trace::{Detail, RecorderOptions};

use crate::events::{Event, PoolEvent};

/// How a client records what its machine does: [`Builder::recorder`](crate::Builder::recorder).
///
/// By itself it keeps the last calls in memory, for [`Client::trace`](crate::Connections::trace); a [sparse](Self::sparse) one keeps hours. With a
/// [`directory`](Self::directory) it also writes files: when an event calls for it, and when the program panics; at most one a
/// minute.
///
/// ```
/// use std::time::Duration;
/// use cmap_runtime::Recorder;
///
/// let recorder = Recorder::new().bytes(4 << 20).directory("/var/tmp").when_wait_exceeds(Duration::from_secs(2));
/// ```
#[derive(Clone)]
#[must_use = "it records nothing before a client is built with it"]
pub struct Recorder {
    options: RecorderOptions,
    pub(super) directory: Option<PathBuf>,
    pub(super) when: Vec<Predicate>,
    /// The wait that calls for a file.
    pub(super) wait_limit: Option<Duration>,
    pub(super) linger: Duration,
}

/// Whether an event calls for a file.
pub(super) type Predicate = Arc<dyn Fn(&ServerAddress, &Event) -> bool + Send + Sync>;

/// The variable of the environment that turns recorders on.
const DIRECTORY: &str = "CMAP_TRACE_DIR";

/// The wait that calls for a file where the environment turns a recorder on.
const LONG_WAIT: Duration = Duration::from_secs(2);

impl Recorder {
    /// A recorder that keeps some 35,000 calls in a mebibyte, and writes no files.
    pub fn new() -> Self {
        Self {
            options: RecorderOptions::default(),
            directory: None,
            when: Vec::new(),
            wait_limit: None,
            linger: Duration::from_secs(1),
        }
    }

    /// A sparse recorder, which may always be on: it keeps hours in a mebibyte (X-113). Each check-out that waits for a millisecond or
    /// longer is explained while it waits, of more than sixteen at a time by what bound those before it; the others are counted. Its
    /// files explain what happened, and cannot be repeated.
    pub fn sparse() -> Self {
        let mut recorder = Self::new();
        recorder.options.detail = Detail::Sparse;
        recorder
    }

    /// That of the environment: where CMAP_TRACE_DIR names a directory, clients without a recorder of their own write files
    /// there when a check-out waits for more than two seconds or fails, and when the program panics.
    pub(crate) fn of_environment() -> Option<Self> {
        let directory = std::env::var_os(DIRECTORY).filter(|directory| !directory.is_empty())?;
        Some(Self::new().directory(directory).when_wait_exceeds(LONG_WAIT))
    }

    pub(crate) fn options(&self) -> RecorderOptions {
        self.options
    }

    /// How many bytes of memory the recording takes. Default a mebibyte. Calls of clients with thousands of connections or waiters
    /// take more: up to 70 times what their state takes.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.options.bytes = bytes;
        self
    }

    /// Where files are written: `cmap-<process>-<seconds since 1970>-<number>.trace`, for their owner alone. It has to exist. It keeps a
    /// hundred of such files, of all processes; beyond that the oldest is deleted. Default nowhere.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Writes a file when `predicate` holds for an event, in addition to those named before. It is called as handlers are:
    /// [`Builder::on_event`](crate::Builder::on_event). That makes events, which cost more than recording.
    pub fn when(mut self, predicate: impl Fn(&ServerAddress, &Event) -> bool + Send + Sync + 'static) -> Self {
        self.when.push(Arc::new(predicate));
        self
    }

    /// Writes a file when a check-out has waited for longer than `limit`, for its server and its connection together, whether or not it
    /// got them; and when one has failed sooner, since a caller that gives up before the limit has waited for nothing as well.
    pub fn when_wait_exceeds(mut self, limit: Duration) -> Self {
        self.wait_limit = Some(self.wait_limit.map_or(limit, |before| before.min(limit)));
        // Events of pools leave out the wait for a server, of which check-outs tell the trigger themselves.
        self.when(move |_, event| {
            let Event::Pool(event) = event else { return false };
            if let PoolEvent::ConnectionCheckOutFailed { reason, .. } = event {
                return *reason != CheckOutFailedReason::PoolClosed;
            }
            matches!(event, PoolEvent::ConnectionCheckedOut { duration, .. } if *duration > limit)
        })
    }

    /// How long recording goes on before the file is written, so that it shows what followed, too. Default one second.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}
