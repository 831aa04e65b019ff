//! The engine `core`: the machines of `cmap_core` in virtual time, clients on one side, embedded servers on the other.
//!
//! Nothing sleeps and no socket is opened. The threads of a test are futures; while one of them can go on, time stands
//! still. When all wait, the world takes a step: something arrives, a timer of a machine is due, or time jumps to the
//! next moment at which anything happens. Where several things could happen at once, the seed decides.

mod connection;
mod machine;
mod network;
mod servers;
mod world;

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use bson::Document;
use cmap_core::options::ClientOptions;

pub use self::connection::{CoreClient, CoreConnection};
use self::world::World;
use super::client::Engine;
use super::failure::Failure;
use super::format::{CollectionData, Deployment};
use super::journal::Journal;

/// The most moves of a test; more means that it runs in circles.
const MOST_MOVES: u32 = 2_000_000;

/// A virtual world: clients, servers, threads and their time.
#[derive(Clone)]
pub struct CoreEngine {
    deployment: Deployment,
    world: Rc<RefCell<World>>,
    threads: Rc<RefCell<Vec<Thread>>>,
}

type Thread = Pin<Box<dyn Future<Output = ()>>>;

impl CoreEngine {
    /// A world with the servers of `deployment`. All chance is drawn from `seed`.
    pub fn new(deployment: Deployment, seed: u64) -> Self {
        let world = World::new(servers::start(deployment, seed), seed);
        Self { deployment, world: Rc::new(RefCell::new(world)), threads: Rc::default() }
    }

    /// Lets the world go on until `main` has come to its end.
    ///
    /// # Errors
    /// It never will.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> Result<T, String> {
        let mut main = pin!(main);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..MOST_MOVES {
            loop {
                if let Poll::Ready(ended) = main.as_mut().poll(&mut context) {
                    return Ok(ended);
                }
                if !self.poll_threads(&mut context) {
                    break;
                }
            }
            if !self.world.borrow_mut().step() {
                return Err("everything waits, and nothing will happen any more".into());
            }
        }
        Err("the test does not come to an end".into())
    }

    /// Lets each thread go on. Returns whether that may have given the others something to do.
    fn poll_threads(&self, context: &mut Context<'_>) -> bool {
        let before = self.world.borrow().activity();
        let mut threads = core::mem::take(&mut *self.threads.borrow_mut());
        let count = threads.len();
        let first = self.world.borrow_mut().choose(count);
        threads.rotate_left(first);
        threads.retain_mut(|thread| thread.as_mut().poll(context).is_pending());
        let has_ended = threads.len() < count;
        let mut own = self.threads.borrow_mut();
        let has_begun = !own.is_empty();
        own.append(&mut threads);
        has_ended || has_begun || self.world.borrow().activity() != before
    }
}

impl Engine for CoreEngine {
    type Client = CoreClient;

    fn uri(&self, multiple: bool) -> String {
        servers::uri(self.deployment, multiple)
    }

    fn client(&self, options: ClientOptions, journal: Journal) -> Result<CoreClient, Failure> {
        CoreClient::new(&self.world, options, journal)
    }

    fn spawn(&self, thread: Thread) {
        self.threads.borrow_mut().push(thread);
    }

    async fn sleep(&self, duration: Duration) {
        self.wait(duration, || false).await;
    }

    async fn wait(&self, patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
        let until = self.world.borrow_mut().set_alarm(patience);
        poll_fn(|_| {
            if condition() {
                Poll::Ready(true)
            } else if self.world.borrow().now() >= until {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    fn fill(&self, data: &CollectionData) -> Result<(), Failure> {
        let mut world = self.world.borrow_mut();
        let now = world.now();
        world.network().servers_mut().iter_mut().try_for_each(|server| servers::fill(server, now, data))
    }

    fn content(&self, database: &str, collection: &str) -> Result<Vec<Document>, Failure> {
        let mut world = self.world.borrow_mut();
        let now = world.now();
        match world.network().servers_mut().first_mut() {
            Some(server) => servers::content(server, now, database, collection),
            None => Err(Failure::client("there is no server")),
        }
    }
}
