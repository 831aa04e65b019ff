//! A user's own session.

use std::fmt;

use bson::{RawDocument, Timestamp};
use cmap_core::session::{Causality, ClusterTime, SessionId};

use super::sessions::Lent;
use crate::runtime::Runtime;

/// What a session does beyond having an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Whether its reads see its earlier writes and reads on any member (SES-15). Default true.
    pub causal_consistency: bool,
}

/// A session of a user's own: its operations belong together, and by default each read sees what the session has seen and
/// written before, on any member. Made by [`Client::start_session`](crate::Client::start_session); used by
/// [`Operation::in_session`](crate::Operation::in_session). One operation runs in it at a time.
///
/// Dropping it returns its id to the client, for later sessions.
///
/// ```
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::core::options::{ReadMode, ReadPreference};
/// use cmap_runtime::core::topology::ServerSelector;
/// use cmap_runtime::{Client, Error, Runtime};
///
/// /// Reads its own write, from a secondary too.
/// async fn write_and_read<R: Runtime>(client: &Client<R>) -> Result<(), Error> {
///     let mut session = client.start_session()?;
///     let insert = doc! { "insert": "orders", "documents": [{ "_id": 1 }], "writeConcern": { "w": "majority" } };
///     client.operation(ServerSelector::Writable, ("shop", insert)).in_session(&mut session).run().await?;
///     let find = doc! { "find": "orders", "readConcern": { "level": "majority" } };
///     let nearest = ReadPreference::new(ReadMode::Nearest);
///     client.operation(nearest, ("shop", find)).in_session(&mut session).run().await?;
///     Ok(())
/// }
/// ```
pub struct Session<R: Runtime> {
    pub(crate) lent: Lent<R>,
    pub(crate) causality: Causality,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { causal_consistency: true }
    }
}

impl<R: Runtime> Session<R> {
    pub(crate) fn new(lent: Lent<R>, options: SessionOptions) -> Self {
        Self { lent, causality: Causality::new(options.causal_consistency) }
    }

    /// Its id, as the server knows it.
    pub fn id(&self) -> SessionId {
        self.lent.id()
    }

    /// Whether a network error has cut off one of its commands, so that its id will not be used again (SES-8).
    pub fn is_dirty(&self) -> bool {
        self.lent.is_dirty()
    }

    /// The greatest cluster time that it has seen: for another session that is to see as much.
    pub fn cluster_time(&self) -> Option<&RawDocument> {
        self.causality.cluster_time().map(ClusterTime::document)
    }

    /// The time of its latest operation.
    pub fn operation_time(&self) -> Option<Timestamp> {
        self.causality.operation_time()
    }

    /// Takes over the cluster time of another session (SES-14).
    pub fn advance_cluster_time(&mut self, seen: &RawDocument) {
        self.causality.advance_cluster_time(seen);
    }

    /// Takes over the time of another session's latest operation, so that reads see what it has written.
    pub fn advance_operation_time(&mut self, time: Timestamp) {
        self.causality.advance_operation_time(time);
    }
}

impl<R: Runtime> fmt::Debug for Session<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).finish_non_exhaustive()
    }
}
