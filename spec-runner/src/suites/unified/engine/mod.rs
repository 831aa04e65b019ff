//! The engine of the unified suites: the public client in a simulation, against virtual servers.
//!
//! Nothing sleeps and no socket is opened. The threads of a test are futures beside the test itself; while one of them
//! can go on, time stands still. Where several things could happen at once, the seed decides.

mod connection;
mod cursor;
mod servers;

use alloc::rc::Rc;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;

use bson::Document;
use cmap_core::options::ClientOptions;
use cmap_sim::Sim;

pub use self::connection::SimClient;
pub use self::cursor::SimCursor;
use self::servers::Servers;
use super::client::Engine;
use super::failure::Failure;
use super::format::{CollectionData, Deployment};
use super::journal::Journal;

/// The longest that a test may take, in virtual time: no test waits that long.
const LIMIT: Duration = Duration::from_secs(3600);

/// How often a condition is looked at of which nobody tells.
const LOOK: Duration = Duration::from_millis(1);

/// How long events may be on their way to the journal.
const DELIVERY: Duration = Duration::from_millis(1);

/// A simulation with the servers of one deployment, and the threads of a test.
#[derive(Clone)]
pub struct SimEngine {
    deployment: Deployment,
    sim: Rc<Sim>,
    servers: Rc<Servers>,
    threads: Rc<RefCell<Vec<Thread>>>,
}

type Thread = Pin<Box<dyn Future<Output = ()>>>;

impl SimEngine {
    /// A simulation with the servers of `deployment`. All chance is drawn from `seed`.
    pub fn new(deployment: Deployment, seed: u64) -> Self {
        let sim = Sim::new(seed);
        let servers = Rc::new(Servers::start(&sim, deployment));
        Self { deployment, sim: Rc::new(sim), servers, threads: Rc::default() }
    }

    /// Runs `main` and its threads to the end of `main`.
    ///
    /// # Errors
    /// It has none.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> Result<T, String> {
        let limited = async {
            let (mut main, mut limit) = (pin!(main), pin!(self.sim.sleep(LIMIT)));
            poll_fn(|cx| {
                self.poll_threads(cx);
                match main.as_mut().poll(cx) {
                    Poll::Ready(output) => Poll::Ready(Ok(output)),
                    Poll::Pending => {
                        limit.as_mut().poll(cx).map(|()| Err(format!("the test does not end within {LIMIT:?}")))
                    }
                }
            })
            .await
        };
        self.sim.try_run(limited).unwrap_or_else(|stuck| Err(stuck.to_string()))
    }

    /// Lets each thread go on. A thread that is spawned meanwhile gets its turn when the test has waited.
    fn poll_threads(&self, cx: &mut Context<'_>) {
        let mut threads = core::mem::take(&mut *self.threads.borrow_mut());
        threads.retain_mut(|thread| thread.as_mut().poll(cx).is_pending());
        self.threads.borrow_mut().append(&mut threads);
    }
}

impl Engine for SimEngine {
    type Client = SimClient;

    fn uri(&self, multiple: bool) -> String {
        self.servers.uri(self.deployment, multiple)
    }

    async fn client(&self, options: ClientOptions, journal: Journal) -> Result<SimClient, Failure> {
        SimClient::new(self.sim.runtime().clone(), options, journal).await
    }

    fn spawn(&self, thread: Thread) {
        self.threads.borrow_mut().push(thread);
    }

    async fn sleep(&self, duration: Duration) {
        self.sim.sleep(duration).await;
    }

    async fn settle(&self) {
        self.sim.sleep(DELIVERY).await;
    }

    async fn wait(&self, patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
        let until = self.sim.elapsed().saturating_add(patience);
        while !condition() {
            if self.sim.elapsed() >= until {
                return false;
            }
            self.sim.sleep(LOOK).await;
        }
        true
    }

    fn fill(&self, data: &CollectionData) -> Result<(), Failure> {
        self.servers.fill(data)
    }

    fn ask(&self, database: &str, command: &Document) -> Result<Document, Failure> {
        self.servers.ask(database, command)
    }

    fn content(&self, database: &str, collection: &str) -> Result<Vec<Document>, Failure> {
        self.servers.content(database, collection)
    }
}
