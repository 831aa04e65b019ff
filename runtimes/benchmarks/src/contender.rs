//! A measured pool, and the implementation for ours.

use std::future::Future;
use std::time::Duration;

use cmap_runtime::{Client, Connection, Connections, Runtime};

use crate::server::Server;

/// The number of connections of every pool.
pub const SIZE: usize = 8;

/// A pool of [`SIZE`] connections. Every task that uses it has a clone.
pub trait Contender: Clone + Send + Sync + 'static {
    /// A connection in use, which goes back when it is dropped.
    type Guard: Send + 'static;

    /// Waits for a connection; `None` if the time was up.
    fn check_out(&self) -> impl Future<Output = Option<Self::Guard>> + Send;
}

/// A client of `server`, with [`SIZE`] connections. After `limit` a check-out fails; zero means never.
pub async fn client<R: Runtime>(server: &Server, limit: Duration) -> Client<R> {
    let limit = limit.as_millis();
    let query = format!("maxPoolSize={SIZE}&maxIdleTimeMS=600000&waitQueueTimeoutMS={limit}");
    Client::connect(&server.uri(&query)).await.unwrap()
}

impl<R: Runtime> Contender for Client<R> {
    type Guard = Connection<R>;

    async fn check_out(&self) -> Option<Connection<R>> {
        // By its path: the trait's method has the name, too.
        Connections::check_out(self).await.ok()
    }
}
