//! The official driver, on a runtime of its own: it runs only on tokio, whatever ours runs on.

use cmap_runtime::bson::doc;
use mongodb::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Threads;
use crate::contender::SIZE;
use crate::pinger::{Load, Pinger};
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
        let uri = server.uri(&format!("maxPoolSize={SIZE}&directConnection=true"));
        let client = runtime.block_on(Client::with_uri_str(uri)).unwrap();
        Self { client, runtime }
    }
}

impl Load for Official {
    fn ping_for_a_round(&self, tasks: usize) -> u32 {
        self.runtime.block_on(async {
            let tasks: JoinSet<u32> = (0..tasks).map(|_| self.client.clone().ping_for_a_round()).collect();
            tasks.join_all().await.into_iter().sum()
        })
    }

    fn ping_in_turn(&self, count: u32) {
        self.runtime.block_on(async {
            for _ in 0..count {
                self.client.ping().await;
            }
        });
    }
}

impl Pinger for Client {
    async fn ping(&self) {
        self.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
    }
}
