//! When a file is written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::recorder::{Predicate, Recorder};
use super::{files, on_panic};
use crate::driver::Driver;
use crate::events::Listeners;
use crate::runtime::Runtime;

/// What writes the files of a client that has a recorder with a directory.
pub(crate) struct Trigger<R: Runtime> {
    driver: OnceLock<Weak<Driver<R>>>,
    directory: PathBuf,
    linger: Duration,
    /// The wait that calls for a file.
    pub(crate) wait_limit: Option<Duration>,
    /// When the last file was called for.
    last: Mutex<Option<Instant>>,
}

/// Shortest time between two files of a client.
const INTERVAL: Duration = Duration::from_secs(60);

impl<R: Runtime> Trigger<R> {
    /// Listens to the events that call for files. `None` if the recorder has no directory.
    pub(crate) fn of(recorder: &Recorder, listeners: &mut Listeners) -> Option<Arc<Self>> {
        let trigger = Arc::new(Self {
            driver: OnceLock::new(),
            directory: recorder.directory.clone()?,
            linger: recorder.linger,
            wait_limit: recorder.wait_limit,
            last: Mutex::default(),
        });
        for predicate in &recorder.when {
            let (trigger, predicate): (_, Predicate) = (Arc::clone(&trigger), Arc::clone(predicate));
            listeners.handlers.push(Box::new(move |address, event| {
                if predicate(address, event) {
                    trigger.pull(event.name());
                }
            }));
        }
        Some(trigger)
    }

    /// Names the client, once it is there.
    pub(crate) fn attach(self: &Arc<Self>, driver: &Arc<Driver<R>>) {
        if self.driver.set(Arc::downgrade(driver)).is_ok() && driver.trigger.set(Arc::clone(self)).is_ok() {
            let files: Weak<dyn on_panic::Files> = Arc::<Self>::downgrade(self);
            on_panic::register(files);
        }
    }

    /// Writes a file after a while, in the background, unless one was called for within the last minute.
    pub(crate) fn pull(self: &Arc<Self>, reason: &'static str) {
        let Some(driver) = self.driver.get().and_then(Weak::upgrade) else { return };
        if self.is_due(driver.clock.runtime().now()) {
            self.write_later(driver, reason);
        }
    }

    /// Writes a file after a while, however short ago another one was called for: for what happens once in the life of a recording.
    pub(crate) fn pull_always(self: &Arc<Self>, reason: &'static str) {
        if let Some(driver) = self.driver.get().and_then(Weak::upgrade) {
            self.write_later(driver, reason);
        }
    }

    fn write_later(self: &Arc<Self>, driver: Arc<Driver<R>>, reason: &'static str) {
        let runtime = driver.clock.runtime().clone();
        let trigger = Arc::clone(self);
        let at = runtime.now() + self.linger;
        runtime.clone().spawn(async move {
            runtime.sleep_until(at).await;
            if let Some(file) = driver.trace(reason) {
                drop(driver);
                let now = runtime.unix_time();
                let written = runtime.spawn_blocking(move || trigger.write(now, &file)).await;
                tell(written.unwrap_or_else(|| Err(io::Error::other(crate::error::RuntimeGone))));
            }
        });
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }

    /// `now` is the time since 1970.
    fn write(&self, now: Duration, file: &[u8]) -> io::Result<PathBuf> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        static BEGAN: OnceLock<Duration> = OnceLock::new();
        let number = || LAST.fetch_add(1, Ordering::Relaxed) + 1;
        files::write(&self.directory, *BEGAN.get_or_init(|| now), number, file)
    }
}

impl<R: Runtime> on_panic::Files for Trigger<R> {
    fn write_now(&self) {
        let Some(driver) = self.driver.get().and_then(Weak::upgrade) else { return };
        let runtime = driver.clock.runtime();
        if self.is_due(runtime.now())
            && let Some(file) = driver.trace_if_unlocked("panic")
        {
            tell(self.write(runtime.unix_time(), &file));
        }
    }
}

/// Says where a file is, or why there is none.
fn tell(written: io::Result<PathBuf>) {
    match &written {
        Ok(path) => tell_path(path),
        Err(error) => tell_error(error),
    }
}

#[cfg(feature = "tracing")]
fn tell_path(path: &Path) {
    tracing::info!(target: "mongodb.trace", path = %path.display(), "Trace written");
}

#[cfg(not(feature = "tracing"))]
fn tell_path(_: &Path) {}

#[cfg(feature = "tracing")]
fn tell_error(error: &io::Error) {
    tracing::warn!(target: "mongodb.trace", %error, "Trace not written: check that CMAP_TRACE_DIR, or the recorder's directory, can be written to");
}

#[cfg(not(feature = "tracing"))]
fn tell_error(error: &io::Error) {
    eprintln!("cmap: a trace was not written: {error}; check that the recorder's directory can be written to");
}
