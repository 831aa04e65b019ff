//! A signal that something has changed: waiters look again.

use tokio::sync::Notify;

/// Wakes everything that waits for a condition.
#[derive(Debug, Default)]
pub(super) struct Signal(Notify);

impl Signal {
    /// Lets all look again.
    pub(super) fn give(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `condition` gives a value. It is looked at now, and after each signal.
    pub(super) async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        loop {
            // Made before the look, so that no signal falls between the two.
            let signal = self.0.notified();
            if let Some(value) = condition() {
                return value;
            }
            signal.await;
        }
    }
}
