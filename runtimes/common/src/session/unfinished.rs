//! The end of a transaction that nobody waits for any more. A task of the home runtime carries it out, so that the transaction locks
//! nothing at its server, and the session's next operation comes after it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::session::{Ending, TransactionCommand};

use super::options::SessionOptions;
use super::user_session::Session;
use crate::connection::PinnedConnection;
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much later than the end, over a connection of its own, a command of the transaction may come that was given up half-way.
const STRAGGLING: Duration = Duration::from_millis(250);

/// What a task has at hand when it has ended a transaction.
pub(super) struct Back<R: Runtime> {
    /// Whether a network error has cut the end off (SES-8).
    is_dirty: bool,
    pinned: Option<PinnedConnection<R>>,
}

/// An end that was begun. Dropping it before it is over leaves it to a task.
pub(super) struct Unfinished<'s, R: Runtime> {
    pub(super) session: &'s mut Session<R>,
    pub(super) command: TransactionCommand,
    pub(super) is_over: bool,
    /// Whether a command of the transaction was given up half-way, which may come later than the end.
    pub(super) may_straggle: bool,
}

impl<R: Runtime> Drop for Unfinished<'_, R> {
    fn drop(&mut self) {
        if !self.is_over {
            self.session.end_in_task(self.command, self.may_straggle);
        }
    }
}

/// A session whose user may give up the transaction at any await point. Dropping it aborts what is left.
pub(super) struct Guarded<'s, R: Runtime>(pub(super) &'s mut Session<R>);

impl<R: Runtime> Drop for Guarded<'_, R> {
    fn drop(&mut self) {
        self.0.give_up_transaction();
    }
}

impl<R: Runtime> Session<R> {
    /// Leaves the end of the transaction to a task, which ends it again where a command `may_straggle`.
    pub(super) fn end_in_task(&mut self, command: TransactionCommand, may_straggle: bool) {
        let (slot, filler) = Slot::empty();
        let mut ending = Self::new(self.client.clone(), self.borrowed.copy(), SessionOptions::default());
        ending.causality = self.causality.clone();
        ending.transaction = self.transaction.clone();
        ending.span = self.span.take();
        *ending.pinned() = self.pinned().take();
        // It comes after an end that a task is at already.
        ending.back = self.back.take();
        let chore = self.client.context().chores.begin();
        let clock = self.client.driver().clock.clone();
        self.is_commit_unsent = false;
        self.back = Some(slot);
        self.client.driver().clock.runtime().spawn(async move {
            // Its outcome does not matter: the server forgets what is not ended after a minute.
            let ended = ending.send_end(command, Some(PATIENCE.into())).await;
            if may_straggle
                && command == TransactionCommand::Abort
                && ended.is_err_and(|error| error.is_no_such_transaction())
            {
                clock.sleep_until(clock.now() + STRAGGLING).await;
                let _ = ending.send_end(command, Some(PATIENCE.into())).await;
            }
            filler.fill(Back { is_dirty: ending.borrowed.is_dirty(), pinned: ending.pinned().take() });
            drop(chore);
        });
    }

    /// Aborts the transaction in a task, if the server may have it and has not been asked to end it.
    pub(super) fn give_up_transaction(&mut self) {
        let is_open = self.transaction.abort() == Ok(Ending::Send);
        if is_open || self.is_commit_unsent {
            self.end_in_task(TransactionCommand::Abort, self.borrowed.is_cut_off());
        }
        self.deadline = None;
    }

    /// Whether a task ends its transaction.
    pub(crate) fn is_being_ended(&self) -> bool {
        self.back.is_some()
    }

    /// Waits for the task that ends its transaction, for at most `limit`.
    pub(crate) async fn wait_for_end(&mut self, limit: Option<Duration>) {
        let Some(slot) = &self.back else { return };
        let driver = Arc::clone(self.client.driver());
        // Else time is up.
        let Ok(back) = driver.within(limit, poll_fn(|cx| slot.poll(cx))).await else { return };
        self.back = None;
        let Ok(Back { is_dirty, pinned }) = back else { return };
        if is_dirty {
            self.borrowed.end_command(true);
        }
        *self.pinned() = pinned;
        self.release_unpinned();
    }

    /// Its session goes back to the client when the task has ended the transaction.
    pub(super) fn give_back_after_end(&mut self) {
        let Some(slot) = self.back.take() else { return };
        let (mut borrowed, chore) = (self.borrowed.take_over(), self.client.context().chores.begin());
        self.client.driver().clock.runtime().spawn(async move {
            if let Ok(Back { is_dirty: true, .. }) = poll_fn(|cx| slot.poll(cx)).await {
                borrowed.end_command(true);
            }
            drop(borrowed);
            drop(chore);
        });
    }
}
