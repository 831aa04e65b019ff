//! What operations need of their client.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::retry::RetryPolicy;

use super::pauses::Pauses;
use crate::runtime::Runtime;
use crate::session::Sessions;
use crate::topology::Topology;

/// What operations need of their client. Its clones keep no client open: cursors have one, and outlive their client.
pub(crate) struct Context<R: Runtime> {
    pub(crate) topology: Arc<Topology<R>>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) pauses: Arc<Pauses>,
    pub(crate) policy: RetryPolicy,
    /// timeoutMS; `None` sets no limit.
    pub(crate) timeout: Option<Duration>,
}

impl<R: Runtime> Clone for Context<R> {
    fn clone(&self) -> Self {
        Self {
            topology: Arc::clone(&self.topology),
            sessions: Arc::clone(&self.sessions),
            pauses: Arc::clone(&self.pauses),
            policy: self.policy,
            timeout: self.timeout,
        }
    }
}
