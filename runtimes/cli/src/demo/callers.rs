//! The tasks that share a client: each checks a connection out, pings, and begins again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cmap_core::pool::ConnectionId;
use cmap_core::wire::bson::rawdoc;
use cmap_runtime::{Client, Runtime};

use super::figures::Scene;
use crate::soak::failure::Failure;
use crate::soak::outage::Outages;

/// A task that saw an error tries again after this time, and one that keeps a connection looks again.
const REST: Duration = Duration::from_millis(10);

/// What all tasks note, and how they are told to stop.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    is_over: AtomicBool,
    scene: Mutex<Scene>,
    outages: Mutex<Outages>,
}

/// One task.
pub(super) struct Caller<R: Runtime> {
    pub(super) client: Client<R>,
    pub(super) runtime: R,
    pub(super) ledger: Arc<Ledger>,
    /// Counts the task's end when it is dropped.
    pub(super) over: Sender<()>,
}

impl Ledger {
    pub(super) fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the tasks to stop after what they are doing.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl<R: Runtime> Caller<R> {
    /// Pings until told to stop.
    pub(super) async fn run(self) {
        while !self.ledger.is_over.load(Ordering::Relaxed) {
            match self.ping().await {
                Ok(waited) => self.ledger.scene().succeeded(waited),
                Err(failure) => {
                    self.ledger.scene().failed(&failure);
                    self.runtime.sleep_until(self.runtime.now() + REST).await;
                }
            }
        }
        // The receiver is gone if the stage has stopped waiting.
        let _ = self.over.send(());
    }

    /// Returns how long the check-out waited.
    async fn ping(&self) -> Result<Duration, Failure> {
        let asked = self.runtime.now();
        let mut connection = self.client.check_out().label("ping").await?;
        let waited = self.runtime.now().saturating_duration_since(asked);
        let outages = self.ledger.outages().number();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await?;
        drop(connection);
        self.ledger.outages().succeeded(outages, self.runtime.now());
        Ok(waited)
    }
}

/// Keeps one connection, of which it tells `held`, until it is released.
pub(super) async fn keep<R: Runtime>(
    client: Client<R>,
    runtime: R,
    held: Sender<()>,
    is_released: Arc<AtomicBool>,
) -> Result<ConnectionId, Failure> {
    let connection = client.check_out().label("kept").await?;
    // The receiver is gone if the stage has stopped waiting.
    let _ = held.send(());
    while !is_released.load(Ordering::Relaxed) {
        runtime.sleep_until(runtime.now() + REST).await;
    }
    Ok(connection.id())
}
