//! One test while it runs: a pool of its own, the threads as tasks, and the end.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_core::pool::{IdentityId, ServiceId};
use cmap_runtime::{Connection, Event, Pool, PoolBuilder, Runtime};

use super::control::{Control, VirtualServer};
use super::journal::Journal;
use super::obstacle;
use super::signal::Signal;
use super::threads::Threads;
use crate::suites::cmap::engine::{ActualError, EVENT_TIMEOUT, Run, users};
use crate::suites::cmap::format::{Case, Operation, OperationError};

/// The time limit of a test.
const LONGEST: Duration = Duration::from_secs(60);

/// The same in virtual time, which costs nothing: longer than any test waits.
const LONGEST_IN_VIRTUAL_TIME: Duration = Duration::from_secs(100 * 86_400);

/// The time-out of an operation, if a test has one.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(200);

/// One test while it runs, shared by its threads.
pub(super) struct Session<R: Runtime> {
    pub(super) case: Arc<Case>,
    pub(super) runtime: R,
    pub(super) pool: Pool<R>,
    /// The users of the pool beside that of its options.
    pub(super) users: BTreeMap<String, IdentityId>,
    /// Present if the test needs fail points.
    pub(super) control: Option<Control<R>>,
    pub(super) journal: Arc<Journal>,
    pub(super) signal: Arc<Signal>,
    stage: Mutex<Stage<R>>,
}

/// The state that the threads share.
pub(super) struct Stage<R: Runtime> {
    pub(super) threads: Threads,
    /// The connections that operations can name.
    pub(super) labels: BTreeMap<String, Connection<R>>,
    /// Connections that no operation can name any more; they stay checked out.
    pub(super) nameless: Vec<Connection<R>>,
    /// The server's numbers of connections that were checked out, by those of the pool.
    pub(super) numbers_at_server: BTreeMap<u64, i64>,
    /// The same by label, also after the check-in.
    pub(super) numbers_of_labels: BTreeMap<String, i64>,
    /// The service behind the load balancer, once a connection has reported it.
    pub(super) service: Option<ServiceId>,
    pub(super) violations: Vec<String>,
    pub(super) standstill: Duration,
    /// The number of tasks.
    pub(super) tasks: usize,
    /// Whether it is over: the tasks end, wherever they stand.
    pub(super) is_over: bool,
}

/// Carries out `case` against the server that `server` names, and that obeys if it is virtual, in the runtime of the caller;
/// `prepare` adds to the pool's builder.
pub(in crate::suites::cmap::engine) async fn run<R: Runtime>(
    case: Arc<Case>,
    server: &ClientOptions,
    obeys: Option<Arc<dyn VirtualServer>>,
    prepare: impl FnOnce(PoolBuilder<R>) -> PoolBuilder<R>,
) -> Run {
    match Session::<R>::begin(case, server, obeys, prepare).await {
        Ok(session) => Arc::new(session).run().await,
        Err(problem) => Run { violations: vec![problem], ..Run::default() },
    }
}

impl<R: Runtime> Session<R> {
    async fn begin(
        case: Arc<Case>,
        server: &ClientOptions,
        obeys: Option<Arc<dyn VirtualServer>>,
        prepare: impl FnOnce(PoolBuilder<R>) -> PoolBuilder<R>,
    ) -> Result<Self, String> {
        let runtime = R::current().map_err(|gone| gone.to_string())?;
        let service_ids = obeys.as_ref().map_or_else(Vec::new, |server| server.service_ids());
        let control = match obeys {
            Some(server) => Some(Control::Virtual(server)),
            None if obstacle::sets_fail_points(&case) || obstacle::has_failing_operations(&case) => {
                Some(Control::connect(server).await.map_err(|error| error.to_string())?)
            }
            None => None,
        };
        if let (Some(control), Some(fail_point)) = (&control, &case.fail_point) {
            control.configure(fail_point.command()).await?;
        }
        let signal = Arc::new(Signal::default());
        let journal = Arc::new(Journal::new(Arc::clone(&case), Arc::clone(&signal), service_ids));
        let listener = Arc::clone(&journal);
        let builder = Pool::builder(options(&case, server)).on_event(move |address, event| {
            if let Event::Pool(event) = event {
                listener.note(address, event);
            }
        });
        let pool = prepare(builder).build().await.map_err(|error| error.to_string())?;
        let users = users::add(&case, &pool)?;
        let stage = Mutex::new(Stage {
            threads: Threads::default(),
            labels: BTreeMap::new(),
            nameless: Vec::new(),
            numbers_at_server: BTreeMap::new(),
            numbers_of_labels: BTreeMap::new(),
            service: None,
            violations: Vec::new(),
            standstill: Duration::ZERO,
            tasks: 0,
            is_over: false,
        });
        Ok(Self { case, runtime, pool, users, control, journal, signal, stage })
    }

    async fn run(self: Arc<Self>) -> Run {
        let error = match self.within(self.longest(), self.main_thread()).await {
            Some(ended) => ended.err(),
            None => {
                let threads = format!("{:?}", self.stage().threads);
                self.violation(format!("the test does not come to an end: {threads}"));
                None
            }
        };
        self.hear_everything().await;
        let events = self.journal.events();
        self.settle().await;
        let mut stage = self.stage();
        let violations = std::mem::take(&mut stage.violations);
        Run { events, error, violations, standstill: stage.standstill, ..Run::default() }
    }

    fn longest(&self) -> Duration {
        match self.control {
            Some(Control::Virtual(_)) => LONGEST_IN_VIRTUAL_TIME,
            Some(Control::Connection(_)) | None => LONGEST,
        }
    }

    /// Operations that the main thread gives to others begin before it goes on, even to give more, and before it ends:
    /// so arrivals have the order of the file.
    async fn main_thread(self: &Arc<Self>) -> Result<(), ActualError> {
        for (number, step) in self.case.operations.iter().enumerate() {
            self.others_wait().await;
            match &step.thread {
                Some(thread) => self.change(|stage| stage.threads.give(thread, number)),
                None => self.carry_out(None, &step.operation).await?,
            }
        }
        self.others_wait().await;
        Ok(())
    }

    /// Starts a thread: a task that carries out its operations until the test is over.
    pub(super) fn start(self: &Arc<Self>, thread: &str) {
        self.change(|stage| {
            stage.threads.start(thread);
            stage.tasks += 1;
        });
        let (session, thread) = (Arc::clone(self), thread.to_owned());
        self.runtime.spawn(async move {
            let over = session.until(|stage| stage.is_over.then_some(()));
            either(session.other_thread(&thread), over).await;
            session.change(|stage| stage.tasks -= 1);
        });
    }

    async fn other_thread(self: &Arc<Self>, thread: &str) {
        loop {
            let number = self.until(|stage| stage.threads.begin_next(thread)).await;
            let Some(step) = self.case.operations.get(number) else { return };
            let outcome = self.carry_out(Some(thread), &step.operation).await;
            let has_failed = outcome.is_err();
            self.change(|stage| stage.threads.end_step(thread, outcome));
            if has_failed {
                return;
            }
        }
    }

    async fn others_wait(&self) {
        self.until(|stage| (!stage.threads.is_any_at_work()).then_some(())).await;
    }

    /// Waits until the journal has all events so far.
    pub(super) async fn hear_everything(&self) {
        let (stats, state) = (self.pool.stats(), self.pool.state());
        let heard = self.signal.until(|| self.journal.has_caught_up(&stats, state).then_some(()));
        if self.within(EVENT_TIMEOUT, heard).await.is_none() {
            self.violation("events of what has happened were not told");
        }
    }

    /// Waits until `condition` holds for the threads.
    pub(super) async fn until<T>(&self, mut condition: impl FnMut(&mut Stage<R>) -> Option<T>) -> T {
        self.signal.until(|| condition(&mut self.stage())).await
    }

    /// Changes the shared state, and wakes all waiters.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Stage<R>) -> T) -> T {
        let result = change(&mut self.stage());
        self.signal.give();
        result
    }

    /// `work`, if it ends within `limit`.
    pub(super) async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let timer = self.runtime.sleep_until(self.runtime.now() + limit);
        either(async { Some(work.await) }, async {
            timer.await;
            None
        })
        .await
    }

    pub(super) fn violation(&self, what: impl ToString) {
        self.stage().violations.push(what.to_string());
    }

    pub(super) fn stage(&self) -> MutexGuard<'_, Stage<R>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of the future that ends first; of the first one, if both have ended.
async fn either<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(output),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await
}

/// The options of the test's pool.
fn options(case: &Case, server: &ClientOptions) -> ClientOptions {
    let mut options = server.clone();
    options.pool = case.pool_options.to_core();
    options.load_balanced = case.pool_options.load_balanced.or(server.load_balanced);
    options.app_name.clone_from(&case.pool_options.app_name);
    let millis = |millis: u32| Duration::from_millis(millis.into());
    options.connect_timeout = case.server.connect_timeout_ms.map(millis).or(server.connect_timeout);
    options.timeout = None;
    let times_out =
        |operation: &Operation| matches!(operation, Operation::CheckIn { error: Some(OperationError::Timeout), .. });
    if case.operations.iter().any(|step| times_out(&step.operation)) {
        options.socket_timeout = Some(OPERATION_TIMEOUT);
    }
    options
}
