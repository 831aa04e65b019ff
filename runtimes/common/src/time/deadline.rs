//! The limits that callers set: how long one call may wait, and when an operation of several calls has to end.

use std::time::{Duration, Instant};

use crate::runtime::Runtime;

/// The default of connectTimeoutMS (URI-12).
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The end of an operation that checks out a connection and runs commands: each of these gets the time that is left.
///
/// ```
/// use std::time::Duration;
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::{Client, Error, Reply, Runtime};
///
/// async fn add_and_count<R: Runtime>(client: &Client<R>) -> Result<Reply<'static>, Error> {
///     let deadline = client.deadline(Duration::from_secs(2));
///     let mut connection = client.check_out_within(deadline).await?;
///     connection.run_command_within("db", doc! { "insert": "things", "documents": [{ "name": "apple" }] }, deadline).await?;
///     Ok(connection.run_command_within("db", doc! { "count": "things" }, deadline).await?)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline {
    /// `None` lies beyond what the runtime's clock can show.
    at: Option<Instant>,
}

/// How long a call may take. Calls take anything that can become one: a [`Duration`], a [`Deadline`], or `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As long as it needs.
    None,
    /// So long, from its first poll on. Zero means that time is up: the call fails at once.
    Within(Duration),
    /// Until then.
    Until(Deadline),
}

impl Deadline {
    /// Ends `limit` from now, by the clock of `runtime`.
    pub fn within<R: Runtime>(runtime: &R, limit: Duration) -> Self {
        Self { at: runtime.now().checked_add(limit) }
    }

    /// The time left; zero when it is over.
    pub fn left<R: Runtime>(self, runtime: &R) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(runtime.now()))
    }

    pub(crate) fn at(self) -> Option<Instant> {
        self.at
    }
}

impl Limit {
    /// The end of what begins now; `None` is no end.
    pub(crate) fn deadline<R: Runtime>(self, runtime: &R) -> Option<Deadline> {
        match self {
            Self::None => None,
            Self::Within(limit) => Some(Deadline::within(runtime, limit)),
            Self::Until(deadline) => Some(deadline),
        }
    }

    /// How long a call that begins now may take; `None` means as long as it needs.
    pub(crate) fn left<R: Runtime>(self, runtime: &R) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Within(limit) => Some(limit),
            Self::Until(deadline) => deadline.at.map(|_| deadline.left(runtime)),
        }
    }
}

impl From<Duration> for Limit {
    fn from(limit: Duration) -> Self {
        Self::Within(limit)
    }
}

impl From<Option<Duration>> for Limit {
    fn from(limit: Option<Duration>) -> Self {
        limit.map_or(Self::None, Self::Within)
    }
}

impl From<Deadline> for Limit {
    fn from(deadline: Deadline) -> Self {
        Self::Until(deadline)
    }
}

/// The limit that an option sets; zero sets none (CSOT-2).
pub(crate) fn without_zero(option: Option<Duration>) -> Option<Duration> {
    option.filter(|limit| !limit.is_zero())
}
