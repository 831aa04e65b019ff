//! A client that pings, and the implementation for ours.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cmap_runtime::bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_runtime::{Client, Runtime};

use crate::Harness;
use crate::contender::client;
use crate::pools::USUAL;
use crate::server::Server;
use crate::tasks::{clock, join};

/// How long a round of pings takes.
pub const ROUND: Duration = Duration::from_millis(30);

/// The handle that every task clones.
pub trait Pinger: Clone + Send + Sync + 'static {
    /// Check out, `ping`, check in.
    fn ping(&self) -> impl Future<Output = ()> + Send;

    /// How often one task does it in a [`ROUND`].
    fn ping_for_a_round(self) -> impl Future<Output = u32> + Send {
        async move {
            let (start, mut count) = (clock(), 0);
            while start.elapsed() < ROUND {
                self.ping().await;
                count += 1;
            }
            count
        }
    }
}

/// A client on its runtime.
pub trait Load {
    /// How often this many tasks ping in a [`ROUND`].
    fn ping_for_a_round(&self, tasks: usize) -> u32;

    /// One task pings this often, on this thread if the runtime has only one.
    fn ping_in_turn(&self, count: u32);
}

/// Our client, on the runtime of a harness, which has to last from one load to the next.
pub struct Cmap<H: Harness>(Ours<H::Runtime>);

/// Our client, and the command.
#[derive(Clone)]
struct Ours<R: Runtime> {
    client: Client<R>,
    ping: Arc<RawDocumentBuf>,
}

impl<H: Harness> Cmap<H> {
    /// A client of `server`.
    pub fn connect(server: &Server) -> Self {
        const { assert!(!H::ENDS) }
        let client = H::block_on(client(server, USUAL));
        Self(Ours { client, ping: Arc::new(rawdoc! { "ping": 1 }) })
    }
}

impl<H: Harness> Load for Cmap<H> {
    fn ping_for_a_round(&self, tasks: usize) -> u32 {
        let tasks = (0..tasks).map(|_| self.0.clone().ping_for_a_round());
        H::block_on(async { join(&H::Runtime::current().unwrap(), tasks).await }).into_iter().sum()
    }

    fn ping_in_turn(&self, count: u32) {
        H::block_on(async {
            for _ in 0..count {
                self.0.ping().await;
            }
        });
    }
}

impl<R: Runtime> Pinger for Ours<R> {
    async fn ping(&self) {
        let mut connection = self.client.check_out().await.unwrap();
        let ping: &RawDocument = &self.ping;
        connection.run_command("admin", ping).await.unwrap();
    }
}
