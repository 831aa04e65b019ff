//! The internals of a client that the suite of the adapters has to see. Users do not need them. They may change at any
//! time.

use std::future::pending;
#[cfg(feature = "srv")]
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "srv")]
use cmap_core::topology::seed_list::SrvRecord;

use crate::socket::abort::{Abort, AbortReason};
use crate::{Client, Runtime};

/// The number of waiters for the last connection of a closed client.
pub fn waits_for_the_end<R: Runtime>(client: &Client<R>) -> usize {
    client.driver().waits_for_the_end()
}

/// The number of entries that the client has for waiters, connections, time limits and closes.
pub fn entries<R: Runtime>(client: &Client<R>) -> usize {
    client.driver().entries()
}

/// The number of sessions that are free, and that no endSessions has named.
pub fn free_sessions<R: Runtime>(client: &Client<R>) -> usize {
    client.sessions().len()
}

/// Lets the time limit of an operation pass, and then the operation end as if it had been in time. Returns whether the
/// limit has aborted the operation, and whether it aborts the next one on its connection.
pub async fn end_as_the_limit_passes<R: Runtime>(client: &Client<R>, limit: Duration) -> (bool, bool) {
    let abort = Arc::new(Abort::default());
    let limit = client.driver().limit(Some(limit), &abort);
    let outcome = abort.during(pending::<()>()).await;
    drop(limit);
    (outcome == Err(AbortReason::TimedOut), abort.get().is_some())
}

/// The SRV records of `name`, as the first of these name servers to answer has them. Called in a task of the runtime.
///
/// # Errors
/// None of them answers.
#[cfg(feature = "srv")]
pub async fn srv_records<R: Runtime>(
    runtime: &R,
    servers: &[SocketAddr],
    name: &str,
) -> std::io::Result<Vec<SrvRecord>> {
    crate::dns::srv(runtime, servers, name).await
}

/// The addresses of `host`, as these name servers know them. Called in a task of the runtime.
///
/// # Errors
/// None of them answers.
#[cfg(feature = "srv")]
pub async fn addresses<R: Runtime>(
    runtime: &R,
    servers: &[SocketAddr],
    host: &str,
    port: u16,
) -> std::io::Result<Vec<SocketAddr>> {
    crate::names::Names::At(servers.into()).addresses(runtime, host, port).await
}
