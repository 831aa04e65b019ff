//! Tells commands that wait for a server that the servers upstream have changed.
//!
//! It listens to the client's events only while somebody waits: they cost each check-out a little.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_tokio::{Client, Event, Notice, Subscription};
use tokio::sync::watch;

/// How many events may be unread. Which ones were lost is no matter: a change is a reason to look at what is there now.
const UNREAD: usize = 64;

/// The commands that wait for a change.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<Option<watch::Sender<()>>>);

impl Changes {
    /// Changes from now on, for one that waits. Its sender ends with the client.
    pub(super) fn watch(this: &Arc<Self>, client: &Client) -> watch::Receiver<()> {
        let mut sender = this.lock();
        if let Some(sender) = &*sender {
            return sender.subscribe();
        }
        let (new, receiver) = watch::channel(());
        *sender = Some(new);
        // Under the lock, so that the next command finds a sender that is told of changes.
        tokio::spawn(tell(Arc::clone(this), client.subscribe(UNREAD)));
        receiver
    }

    /// Whether nobody waits any more. Then the next one makes another sender.
    fn end_if_unwatched(&self) -> bool {
        let mut sender = self.lock();
        let is_watched = sender.as_ref().is_some_and(|sender| sender.receiver_count() > 0);
        if !is_watched {
            *sender = None;
        }
        !is_watched
    }

    fn lock(&self) -> MutexGuard<'_, Option<watch::Sender<()>>> {
        // Nothing under the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn tell(changes: Arc<Changes>, mut events: Subscription) {
    while let Some(notice) = events.next().await {
        if changes.end_if_unwatched() {
            return;
        }
        if matches!(notice, Notice::Lost(_) | Notice::Event { event: Event::Topology(_), .. })
            && let Some(sender) = &*changes.lock()
        {
            sender.send_replace(());
        }
    }
    *changes.lock() = None;
}
