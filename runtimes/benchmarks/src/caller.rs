//! A client that carries out operations, and the implementation for ours.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cmap_runtime::bson::{Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use cmap_runtime::cmap_core::options::ReadPreference;
use cmap_runtime::cmap_core::topology::ServerSelector;
use cmap_runtime::{Client, Runtime};

use crate::Harness;
use crate::contender::client;
use crate::pools::USUAL;
use crate::server::Server;
use crate::tasks::{clock, join};

/// How long a round of operations takes.
pub const ROUND: Duration = Duration::from_millis(30);

/// The database of finds and updates.
pub const DATABASE: &str = "shop";

/// Its collection.
pub const COLLECTION: &str = "fruit";

/// What a task does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Check out, `ping`, check in. The official driver has no check-out: it runs the command.
    PingByCheckOut,
    /// A `ping` by the client, which selects a server, and repeats where it may.
    Ping,
    /// One document by its id, read into a [`Document`].
    FindOne,
    /// One field of one document changed, as a write that may be repeated.
    UpdateOne,
}

/// The handle that every task clones.
pub trait Caller: Clone + Send + Sync + 'static {
    /// Carries out `operation`, and builds its command.
    fn call(&self, operation: Operation) -> impl Future<Output = ()> + Send;

    /// How often one task does it in a [`ROUND`].
    fn call_for_a_round(self, operation: Operation) -> impl Future<Output = u32> + Send {
        async move {
            let (start, mut count) = (clock(), 0);
            while start.elapsed() < ROUND {
                self.call(operation).await;
                count += 1;
            }
            count
        }
    }
}

/// A client on its runtime.
pub trait Load {
    /// How often this many tasks carry out `operation` in a [`ROUND`].
    fn call_for_a_round(&self, operation: Operation, tasks: usize) -> u32;

    /// One task does it this often, on this thread if the runtime has only one.
    fn call_in_turn(&self, operation: Operation, count: u32);
}

/// Our client, on the runtime of a harness, which has to last from one load to the next.
pub struct Cmap<H: Harness>(Ours<H::Runtime>);

/// Our client, and the command of [`Operation::PingByCheckOut`].
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
    fn call_for_a_round(&self, operation: Operation, tasks: usize) -> u32 {
        let tasks = (0..tasks).map(|_| self.0.clone().call_for_a_round(operation));
        H::block_on(async { join(&H::Runtime::current().unwrap(), tasks).await }).into_iter().sum()
    }

    fn call_in_turn(&self, operation: Operation, count: u32) {
        H::block_on(async {
            for _ in 0..count {
                self.0.call(operation).await;
            }
        });
    }
}

impl<R: Runtime> Caller for Ours<R> {
    async fn call(&self, operation: Operation) {
        match operation {
            Operation::PingByCheckOut => {
                let mut connection = self.client.check_out().await.unwrap();
                let ping: &RawDocument = &self.ping;
                connection.run_command("admin", ping).await.unwrap();
            }
            Operation::Ping => {
                self.client.run(("admin", doc! { "ping": 1 })).await.unwrap();
            }
            Operation::FindOne => {
                let find = doc! { "find": COLLECTION, "filter": { "_id": 1 }, "limit": 1, "singleBatch": true };
                let reply = self.client.operation((DATABASE, find)).on(ReadPreference::default()).run().await.unwrap();
                let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
                let found = Document::try_from(batch.get_document(0).unwrap()).unwrap();
                assert!(!found.is_empty());
            }
            Operation::UpdateOne => {
                let change = doc! { "q": { "_id": 1 }, "u": { "$inc": { "stock": -1 } } };
                let update = doc! { "update": COLLECTION, "updates": [change] };
                let reply = self.client.operation((DATABASE, update)).on(ServerSelector::Writable).run().await.unwrap();
                assert_eq!(reply.get_i32("n").unwrap(), 1);
            }
        }
    }
}
