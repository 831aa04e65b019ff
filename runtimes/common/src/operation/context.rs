//! What operations need of their client.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::retry::RetryPolicy;

use super::pauses::Pauses;
use crate::cursor::Doomed;
use crate::driver::Driver;
use crate::runtime::Runtime;
use crate::runtime::chores::Chores;
use crate::session::Sessions;
use crate::time::{Budget, Limit};

/// What operations need of their client. It keeps no client open: cursors share it, and outlive their client.
pub(crate) struct Context<R: Runtime> {
    pub(crate) driver: Arc<Driver<R>>,
    pub(crate) sessions: Arc<Sessions>,
    /// Those of its users' operations.
    pub(crate) pauses: Arc<Pauses>,
    /// Those of its own clean-up, which goes on for longer once it is closed.
    pub(crate) chore_pauses: Arc<Pauses>,
    pub(crate) chores: Arc<Chores>,
    pub(crate) doomed: Doomed<R>,
    pub(crate) policy: RetryPolicy,
    /// timeoutMS; `None` sets no limit.
    pub(crate) timeout: Option<Duration>,
    /// Whether timeoutMS is set: zero, which is no limit, is.
    pub(crate) has_timeout: bool,
}

impl<R: Runtime> Context<R> {
    /// The time of an operation that begins now: by its user's limit, or else by timeoutMS.
    pub(crate) fn budget(&self, limit: Option<Limit>) -> Budget {
        Budget::begin(self.driver.clock.runtime(), limit, self.timeout)
    }
}
