//! What was recorded of the machine, as a file; and who made its calls.

use std::sync::TryLockError;

use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, SelectionErrorKind};
use cmap_core::trace::{Contents, Header};

use super::Driver;
use super::state::State;
use crate::error::CheckOutError;
use crate::runtime::Runtime;
use crate::watch::Tag;

impl<R: Runtime> Driver<R> {
    /// The file. The lock is held for a copy of the last segment only.
    pub(crate) fn trace(&self, reason: &str) -> Option<Vec<u8>> {
        let contents = self.lock().recorded()?;
        Some(self.encode(&contents, reason))
    }

    /// The file, in a thread that may hold the lock itself; `None` while the lock is held.
    pub(crate) fn trace_if_unlocked(&self, reason: &str) -> Option<Vec<u8>> {
        let contents = match self.state.try_lock() {
            Ok(state) => state.recorded()?,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().recorded()?,
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.encode(&contents, reason))
    }

    /// Has a file written if the machine was found to contradict itself, and says so.
    pub(super) fn report_if_broken(&self) {
        let Some(reason) = self.lock().machine.take_reason() else { return };
        tell_broken(&reason);
        if let Some(trigger) = self.trigger.get() {
            trigger.pull_always("broken invariant");
        }
    }

    /// The time, for a check-out that begins to wait, where a long wait calls for a file.
    pub(crate) fn begin_wait(&self) -> Option<Instant> {
        self.trigger.get()?.wait_limit.map(|_| self.clock.now())
    }

    /// Calls for a file if a check-out that got its connection had waited for too long since `began`.
    #[cold]
    pub(crate) fn end_wait(&self, began: Instant) {
        let waited = self.clock.now().saturating_since(began);
        if let Some(trigger) = self.trigger.get()
            && trigger.wait_limit.is_some_and(|limit| waited > limit)
        {
            trigger.pull("ConnectionCheckedOut");
        }
    }

    /// Calls for a file if no server was selected for a check-out. Failures of pools have an event, which does so.
    #[cold]
    pub(super) fn note_failed_selection(&self, error: &CheckOutError) {
        if matches!(error, CheckOutError::Selection(error) if error.kind != SelectionErrorKind::Closed) {
            self.note_vain_wait("ServerSelectionFailed");
        }
    }

    /// Calls for a file if a check-out that ends without a connection does.
    #[cold]
    pub(super) fn note_vain_wait(&self, reason: &'static str) {
        if let Some(trigger) = self.trigger.get()
            && trigger.wait_limit.is_some()
        {
            trigger.pull(reason);
        }
    }

    fn encode(&self, contents: &Contents, reason: &str) -> Vec<u8> {
        let mut header = Header::default();
        header.producer = format!("cmap-runtime {}", env!("CARGO_PKG_VERSION"));
        reason.clone_into(&mut header.trigger);
        header.written_at = self.clock.now();
        header.unix_millis = u64::try_from(self.clock.runtime().unix_time().as_millis()).ok();
        contents.encode(&header)
    }
}

impl<R: Runtime> State<R> {
    fn recorded(&self) -> Option<Contents> {
        let texts = self.watch.as_ref().map(|watch| self.holders.texts(watch));
        Some(self.machine.recording()?.with_texts(texts.unwrap_or_default()))
    }

    /// Records who made the last call, which began a check-out.
    pub(super) fn record_holder(&mut self, check_out: CheckOut, tag: Tag) {
        if self.machine.is_recording()
            && let Some(number) = self.holders.number(tag)
        {
            self.machine.note_holder(check_out, number);
        }
    }
}

#[cfg(feature = "tracing")]
fn tell_broken(reason: &str) {
    tracing::error!(target: "mongodb.trace", reason, "The pool contradicts itself: report this with the trace, which ends before it was found");
}

#[cfg(not(feature = "tracing"))]
fn tell_broken(reason: &str) {
    eprintln!("cmap: {reason}; report this with the trace, which ends before it was found");
}
