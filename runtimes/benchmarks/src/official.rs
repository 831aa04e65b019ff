//! The official driver, on a runtime of its own: it runs only on tokio, whatever ours runs on.

use cmap_runtime::bson::{Document, doc};
use mongodb::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Threads;
use crate::caller::{COLLECTION, Caller, DATABASE, Load, Operation};
use crate::contender::SIZE;
use crate::server::Server;

/// The official driver's client, and its runtime.
pub struct Official {
    client: Client,
    runtime: Runtime,
}

impl Official {
    /// A client of `server` with [`SIZE`] connections, on the waiting thread, or on two beside it.
    pub fn connect(server: &Server, threads: Threads) -> Self {
        let mut runtime = match threads {
            Threads::One => Builder::new_current_thread(),
            Threads::Many => Builder::new_multi_thread(),
        };
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let uri = server.uri(&format!("maxPoolSize={SIZE}"));
        let client = runtime.block_on(Client::with_uri_str(uri)).unwrap();
        Self { client, runtime }
    }
}

impl Load for Official {
    fn call_for_a_round(&self, operation: Operation, tasks: usize) -> u32 {
        self.runtime.block_on(async {
            let tasks: JoinSet<u32> = (0..tasks).map(|_| self.client.clone().call_for_a_round(operation)).collect();
            tasks.join_all().await.into_iter().sum()
        })
    }

    fn call_in_turn(&self, operation: Operation, count: u32) {
        self.runtime.block_on(async {
            for _ in 0..count {
                self.client.call(operation).await;
            }
        });
    }
}

impl Caller for Client {
    async fn call(&self, operation: Operation) {
        match operation {
            Operation::PingByCheckOut | Operation::Ping => {
                self.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
            }
            Operation::FindOne => {
                let fruit = self.database(DATABASE).collection::<Document>(COLLECTION);
                let found = fruit.find_one(doc! { "_id": 1 }).await.unwrap().unwrap();
                assert!(!found.is_empty());
            }
            Operation::UpdateOne => {
                let fruit = self.database(DATABASE).collection::<Document>(COLLECTION);
                let change = doc! { "$inc": { "stock": -1 } };
                let updated = fruit.update_one(doc! { "_id": 1 }, change).await.unwrap();
                assert_eq!(updated.matched_count, 1);
            }
        }
    }
}
