//! One adapter's soak, in a process of its own: it starts, goes on for as long as planned, and is wound up.
//!
//! The thread that runs it only watches and restarts the server; the client and all tasks live in the runtime, as they do
//! in a user's program.

use std::future::Future;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cmap_core::options::{ClientOptions, ConnectionStringError};
use cmap_core::random::Random;
use cmap_runtime::{CheckOutError, Client, ClientError, Runtime, RuntimeGone};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::args::{Plan, Server};
use super::counted::Counted;
use super::failure::{Kind, Surroundings};
use super::panics;
use super::samples::{self, Figures, Sample};
use super::tally::{Ends, Events, Operation};
use super::verdict;
use super::work::{Logbook, Worker};
use crate::process::ProcessError;
use crate::server_process::ServerProcess;

/// The result of a soak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// What there was before the client was made.
    pub(crate) start: Figures,
    /// What there was after it was closed.
    pub(crate) end: Figures,
    /// Operations that ended.
    pub(crate) operations: Vec<(Operation, Ends)>,
    /// Why some failed.
    pub(crate) errors: Vec<(Kind, u64)>,
    /// The pool's events.
    pub(crate) events: Events,
    /// What the server did that explains some of them.
    pub(crate) surroundings: Surroundings,
    /// How often the server was killed.
    pub(crate) restarts: u64,
    /// From the server's return to the first success, each time.
    pub(crate) recoveries: Vec<Duration>,
    /// Restarts that no success followed.
    pub(crate) unrecovered: u64,
    /// maxPoolSize, if there is one.
    pub(crate) max_pool_size: Option<u64>,
    /// The most connections that the pool ever had.
    pub(crate) most_connections: u64,
    /// The most check-outs that ever waited.
    pub(crate) most_waiting: u64,
    /// Check-outs that wait at the end.
    pub(crate) waiting: u64,
    /// Connections in use whose work the close had to cut off.
    pub(crate) cut_off: u64,
    /// Tasks that were still at work long after all had to stop, or were gone before.
    pub(crate) stuck: u64,
    /// Panics, in any task or thread.
    pub(crate) panics: u64,
}

/// Why no client could be put to work on a server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum SessionError {
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ProcessError),
    /// The connection string cannot be used.
    #[error("the connection string cannot be used: {0}")]
    Uri(#[from] ConnectionStringError),
    /// The client was not made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There was no connection to begin with.
    #[error(transparent)]
    CheckOut(#[from] CheckOutError),
    /// The operating system did not let the runtime start.
    #[error("the runtime did not start: {0}")]
    Runtime(#[source] std::io::Error),
    /// The runtime has ended.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
    /// The reader of the output is gone.
    #[error("the output cannot be printed: {0}")]
    Print(#[from] std::io::Error),
}

/// Samples in a soak of any length, and the least and the most time between two.
const SAMPLES: u32 = 120;
const LEAST_BETWEEN: Duration = Duration::from_millis(100);
const MOST_BETWEEN: Duration = Duration::from_secs(15);

/// The client's timeoutMS: nothing that a task does takes longer, but for the pauses it makes itself.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is over or closed is seen a little later: sockets are closed by tasks, and servers notice that even later. Nobody
/// tells when, so one looks again, for at most so long.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The longest that a server stays away.
const LONGEST_OUTAGE: Duration = Duration::from_millis(500);

/// Everything that goes on.
struct Session<'a, R: Runtime> {
    plan: &'a Plan,
    runtime: Counted<R>,
    count_tasks: &'a dyn Fn() -> Option<usize>,
    server: Option<ServerProcess>,
    start: Figures,
    client: Client<Counted<R>>,
    events: Arc<Mutex<Events>>,
    logbook: Arc<Logbook>,
    random: Random,
    restarts: u64,
}

/// Soaks the client of `runtime`. Samples go to `sink` as they are taken. `count_tasks` are the runtime's own figures.
///
/// # Errors
/// The server did not start, the client was not made, or a sample was not printed.
pub(super) fn run<R: Runtime>(
    runtime: R,
    plan: &Plan,
    count_tasks: &dyn Fn() -> Option<usize>,
    sink: &mut dyn FnMut(&Sample) -> std::io::Result<()>,
) -> Result<Run, SessionError> {
    let runtime = Counted::new(runtime);
    let (server, uri) = match &plan.server {
        Server::Own { max_pool_size, .. } => {
            let server = ServerProcess::start()?;
            let uri = server.uri(&format!("maxPoolSize={max_pool_size}"));
            (Some(server), uri)
        }
        Server::Named { uri } => (None, uri.clone()),
    };
    let (mut options, _warnings) = ClientOptions::parse(&uri)?;
    options.timeout.get_or_insert(TIMEOUT);
    // 100 if it is not set, and 0 is no limit (CMAP-5).
    let max_pool_size = Some(u64::from(options.pool.max_pool_size.unwrap_or(100))).filter(|&size| size > 0);
    warm_up(&runtime)?;
    let start = look_until(&runtime, |figures| figures.tasks == 0, || look(&runtime, count_tasks, server.as_ref(), 0));

    let events = Arc::new(Mutex::new(Events::default()));
    let counted = Arc::clone(&events);
    let builder = Client::builder(options).runtime(runtime.clone());
    let builder = builder.on_event(move |_, event| counted.lock().unwrap_or_else(PoisonError::into_inner).note(event));
    let client = wait_for(&runtime, builder.build())??;
    meet(&runtime, &client)?;
    let random = Random::new(plan.seed);
    let logbook = Arc::default();
    let mut session =
        Session { plan, runtime, count_tasks, server, start, client, events, logbook, random, restarts: 0 };
    let tasks = session.begin();
    session.go_on(sink)?;
    let run = session.wind_up(&tasks)?;
    Ok(Run { max_pool_size, ..run })
}

impl<R: Runtime> Session<'_, R> {
    /// Starts the tasks. The receiver hears of each that comes to its end.
    fn begin(&mut self) -> Receiver<()> {
        let (over, tasks) = channel();
        for number in 0..self.plan.tasks {
            let worker = Worker {
                client: self.client.clone(),
                runtime: self.runtime.clone(),
                random: Random::new(self.random.next_u64()),
                number,
                logbook: Arc::clone(&self.logbook),
                over: over.clone(),
            };
            self.runtime.spawn(worker.run());
        }
        tasks
    }

    /// Lets them work for as long as planned, takes samples, restarts the server.
    fn go_on(&mut self, sink: &mut dyn FnMut(&Sample) -> std::io::Result<()>) -> Result<(), SessionError> {
        let start = self.runtime.now();
        let end = start + self.plan.duration;
        let between = (self.plan.duration / SAMPLES).clamp(LEAST_BETWEEN, MOST_BETWEEN);
        let restart_every = match self.plan.server {
            Server::Own { restart_every, .. } => restart_every,
            Server::Named { .. } => None,
        };
        let mut next_sample = start + between;
        // After the last one, too, there is time to recover in.
        let in_time = |restart: Instant, every: Duration| (restart + every / 2 <= end).then_some(restart);
        let mut next_restart = restart_every.and_then(|every| in_time(start + every, every));
        loop {
            let next = next_restart.map_or(next_sample, |restart| restart.min(next_sample)).min(end);
            thread::sleep(next.saturating_duration_since(self.runtime.now()));
            if next == end {
                return Ok(());
            }
            if next_sample <= next {
                sink(&self.sample(start))?;
                next_sample += between;
            }
            if let (Some(restart), Some(every)) = (next_restart, restart_every)
                && restart <= next
            {
                self.restart_server(every)?;
                next_restart = in_time(self.runtime.now() + every, every);
            }
        }
    }

    /// Kills the server, leaves clients alone for a while, and starts it again.
    fn restart_server(&mut self, every: Duration) -> Result<(), SessionError> {
        // A machine that has much else to do may not have come to that yet.
        self.await_recovery();
        let Some(server) = &mut self.server else { return Ok(()) };
        self.logbook.outages().begin();
        self.restarts += 1;
        server.kill();
        let longest = LONGEST_OUTAGE.min(every / 10);
        thread::sleep(Duration::from_millis(self.random.up_to(u64::try_from(longest.as_millis()).unwrap_or_default())));
        server.start_again()?;
        self.logbook.outages().server_is_up(self.runtime.now());
        Ok(())
    }

    fn sample(&self, start: Instant) -> Sample {
        let counts = self.client.stats().counts;
        Sample {
            in_use: counts.in_use,
            waiting: counts.waiting,
            at: self.runtime.now().saturating_duration_since(start),
            figures: self.look(),
            operations: self.logbook.tally().total(),
        }
    }

    fn look(&self) -> Figures {
        let connections = self.client.stats().counts.total();
        look(&self.runtime, self.count_tasks, self.server.as_ref(), connections.into())
    }

    /// Waits until an operation has succeeded after the last restart, which may have been a moment ago.
    fn await_recovery(&self) {
        let patience_ends = self.runtime.now() + PATIENCE;
        while self.logbook.outages().unrecovered() > 0 && self.runtime.now() < patience_ends {
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Stops the tasks, closes the client, and looks at what is left when all has had time to end.
    fn wind_up(self, tasks: &Receiver<()>) -> Result<Run, SessionError> {
        self.await_recovery();
        self.logbook.end();
        let mut stuck = u64::from(self.plan.tasks);
        while tasks.recv_timeout(2 * TIMEOUT).is_ok() {
            stuck -= 1;
        }
        let cut_off = wait_for(&self.runtime, self.client.close(TIMEOUT))??;
        let stats = self.client.stats();
        let Self { runtime, count_tasks, server, start, client, events, logbook, restarts, .. } = self;
        drop(client);
        let connections = u64::from(stats.counts.total());
        let surroundings = match self.plan.server {
            Server::Own { .. } if self.restarts > 0 => Surroundings::Killed,
            Server::Own { .. } => Surroundings::Calm,
            Server::Named { .. } => Surroundings::Slow,
        };
        let look = || look(&runtime, count_tasks, server.as_ref(), connections);
        let end = look_until(&runtime, |figures| verdict::left_over(&start, figures).is_empty(), look);
        let (tally, outages) = (logbook.tally(), logbook.outages());
        let events = *events.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Run {
            start,
            end,
            operations: tally.ends(),
            errors: tally.errors(),
            events,
            surroundings,
            restarts,
            recoveries: outages.recoveries().to_vec(),
            unrecovered: outages.unrecovered(),
            most_connections: stats.high_water_total.into(),
            most_waiting: stats.high_water.waiting.into(),
            waiting: stats.counts.waiting.into(),
            cut_off: cut_off.into(),
            stuck,
            panics: panics::count(),
            ..Run::default()
        })
    }
}

/// Starts what a runtime starts when it is first needed, and then keeps: its reactor, its threads.
fn warm_up<R: Runtime>(runtime: &R) -> Result<(), RuntimeGone> {
    let own = runtime.clone();
    let first_needs = async move {
        // A time that has come would be over without the reactor.
        own.sleep_until(own.now() + BETWEEN_LOOKS).await;
        own.spawn_blocking(|| ()).await
    };
    wait_for(runtime, first_needs).map(drop)
}

/// Waits for the first connection: until the client knows its server, an operation with little time has no chance. If there is
/// none in time, the operations will show that, too.
fn meet<R: Runtime>(runtime: &R, client: &Client<R>) -> Result<(), RuntimeGone> {
    let client = client.clone();
    wait_for(runtime, async move { client.check_out().await.is_ok() }).map(drop)
}

fn look<R: Runtime>(
    runtime: &Counted<R>,
    count_tasks: &dyn Fn() -> Option<usize>,
    server: Option<&ServerProcess>,
    connections: u64,
) -> Figures {
    Figures {
        memory: samples::memory(),
        descriptors: samples::descriptors(),
        tasks: runtime.alive(),
        runtime_tasks: count_tasks().and_then(|count| u64::try_from(count).ok()),
        connections,
        server_connections: server.and_then(ServerProcess::connections),
    }
}

/// Looks again and again until it `is_quiet` or patience ends; returns what it saw last.
fn look_until<R: Runtime>(runtime: &R, is_quiet: impl Fn(&Figures) -> bool, look: impl Fn() -> Figures) -> Figures {
    let patience_ends = runtime.now() + PATIENCE;
    loop {
        let figures = look();
        if is_quiet(&figures) || runtime.now() >= patience_ends {
            return figures;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

/// Runs `future` in the runtime while this thread waits.
pub(crate) fn wait_for<R: Runtime, T: Send + 'static>(
    runtime: &R,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, RuntimeGone> {
    let (sender, result) = channel();
    runtime.spawn(async move {
        // The receiver waits below.
        let _ = sender.send(future.await);
    });
    result.recv().map_err(|_| RuntimeGone)
}
