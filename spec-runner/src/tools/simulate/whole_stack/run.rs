//! One run of a plan: client, network and servers in virtual time, and the laws that hold at its end.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_runtime::Recorder;
use cmap_sim::{Client, Sim, Stuck};

use super::caller::Caller;
use super::fault::FaultKind;
use super::ledger::{Ledger, Limits};
use super::mark::Mark;
use super::place::Place;
use super::plan::{Operation, Patience, Plan, Work};
use super::servers::Target;
use crate::tools::simulate::oracle::{Broken, law};

/// The result of a plan.
pub(super) struct Outcome {
    pub(super) result: Result<(), Broken>,
    pub(super) marks: BTreeSet<Mark>,
    /// Commands that were answered.
    pub(super) commands: u64,
    pub(super) simulated: Duration,
    /// What the client's recorder has, if it had one.
    pub(super) trace: Option<Vec<u8>>,
}

/// The longest run: enough for every operation to meet its time limit.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long everything is left alone after the last fault: a primary is elected, and known.
const REST: Duration = Duration::from_secs(15);

/// How long the client takes to close, and everything that belonged to it to end.
const CLOSING: Duration = Duration::from_secs(5);

/// Room for any run that is worth reading.
const TRACE_BYTES: usize = 16 << 20;

/// Carries out a plan. A recorder changes nothing but the time that it takes.
pub(super) fn run(plan: &Plan, with_recorder: bool) -> Outcome {
    let limits = Limits {
        max_pool_size: usize::try_from(plan.option("maxPoolSize")).unwrap_or(usize::MAX),
        max_connecting: usize::try_from(plan.option("maxConnecting")).unwrap_or(usize::MAX),
        is_calm: plan.is_calm(),
    };
    let ledger = Arc::new(Mutex::new(Ledger::new(limits)));
    let sim = Sim::new(plan.seed);
    let progress = Arc::new(Mutex::new(Progress::default()));
    let run = Run { plan, sim: &sim, ledger: Arc::clone(&ledger), progress: Arc::clone(&progress), with_recorder };
    let ended = catch_unwind(AssertUnwindSafe(|| sim.try_run(run.to_the_end())));
    let ended = match ended {
        Ok(Ok(result)) => result,
        Ok(Err(stuck)) => Err(of_stuck(&stuck)),
        Err(panic) => Err(of_panic(panic.as_ref())),
    };
    let Progress { client, commands, .. } = std::mem::take(&mut *lock(&progress));
    let trace = client.and_then(|client| client.trace());
    let simulated = sim.elapsed();
    // Tasks that are left end with it, and tell what they do to the ledger.
    drop(sim);
    let ledger = lock(&ledger);
    Outcome {
        // What broke first says most.
        result: ledger.broken.clone().map_or(ended, Err),
        marks: ledger.marks.clone(),
        commands,
        simulated,
        trace,
    }
}

/// How far callers and faults are.
#[derive(Default)]
struct Progress {
    callers: usize,
    /// Faults that have not ended, and those of them that have begun.
    faults: usize,
    suffering: usize,
    commands: u64,
    client: Option<Client>,
}

struct Run<'a> {
    plan: &'a Plan,
    sim: &'a Sim,
    ledger: Arc<Mutex<Ledger>>,
    progress: Arc<Mutex<Progress>>,
    with_recorder: bool,
}

impl Run<'_> {
    async fn to_the_end(&self) -> Result<(), Broken> {
        let target = Target::start(self.sim, self.plan.deployment);
        // Its secondaries have what its primary has.
        self.sim.sleep(Duration::from_secs(1)).await;
        let tasks_before = self.sim.tasks();
        let client = self.client(&target).await?;
        self.begin_calling(&client);
        self.begin_suffering(&target);
        self.wait_for_all().await?;
        self.sim.sleep(REST).await;
        self.answers(&client).await?;
        self.sim.sleep(CLOSING).await;
        idles(&client)?;
        let left = client.close(Duration::from_secs(1)).await;
        law("a client closes", left.as_ref().is_ok_and(|left| *left == 0), || format!("{left:?}"))?;
        drop(client);
        self.sim.sleep(CLOSING).await;
        lock(&self.ledger).nothing_is_left()?;
        if !self.plan.faults.iter().any(|fault| fault.kind == FaultKind::LoseData) {
            self.orders_are_kept(&target)?;
        }
        if self.plan.is_calm() {
            lock(&self.ledger).marks.extend([Mark::Calm]);
        }
        // A server learns by its keep-alive probes that a connection was lost, which take hours.
        target.places().iter().for_each(Place::end_lost_connections);
        self.sim.sleep(CLOSING).await;
        if !self.with_recorder {
            let tasks = self.sim.tasks();
            law("tasks end with their client", tasks <= tasks_before, || format!("{tasks}, {tasks_before} before"))?;
        }
        Ok(())
    }

    async fn client(&self, target: &Target) -> Result<Client, Broken> {
        let cannot = |error: &dyn std::fmt::Display| Broken { law: "a client is made", detail: error.to_string() };
        let uri = target.uri(&self.plan.query());
        let (options, _) = ClientOptions::parse(&uri).map_err(|error| cannot(&error))?;
        let ledger = Arc::clone(&self.ledger);
        let mut builder = Client::builder(options).on_event(move |address, event| lock(&ledger).note(address, event));
        if self.with_recorder {
            builder = builder.recorder(Recorder::new().bytes(TRACE_BYTES)).watch_holders(true);
        }
        let client = builder.build().await.map_err(|error| cannot(&error))?;
        if self.with_recorder {
            lock(&self.progress).client = Some(client.clone());
        }
        Ok(client)
    }

    fn begin_calling(&self, client: &Client) {
        let callers: BTreeSet<_> = self.plan.operations.iter().map(|operation| operation.caller).collect();
        for number in callers {
            let own = self.plan.operations.iter().filter(|operation| operation.caller == number);
            let own: Vec<_> = own.copied().collect();
            let (caller, progress) = (self.caller(client), Arc::clone(&self.progress));
            lock(&progress).callers += 1;
            self.sim.spawn(async move {
                for operation in own {
                    let answered = caller.operate(operation).await;
                    lock(&progress).commands += answered;
                }
                lock(&progress).callers -= 1;
            });
        }
    }

    /// Each fault is a task of its own, so that they overlap.
    fn begin_suffering(&self, target: &Target) {
        for fault in self.plan.faults.iter().copied() {
            let (target, runtime) = (target.clone(), self.sim.runtime().clone());
            let (progress, ledger) = (Arc::clone(&self.progress), Arc::clone(&self.ledger));
            lock(&progress).faults += 1;
            self.sim.spawn(async move {
                runtime.sleep(fault.at).await;
                let others = lock(&progress).suffering;
                lock(&progress).suffering += 1;
                let befell = target.suffer(&runtime, fault).await;
                let overlapped = (befell && others > 0).then_some(Mark::Overlapped);
                lock(&ledger).marks.extend(befell.then_some(Mark::Befell(fault.kind)).into_iter().chain(overlapped));
                let mut progress = lock(&progress);
                (progress.suffering, progress.faults) = (progress.suffering - 1, progress.faults - 1);
            });
        }
    }

    fn caller(&self, client: &Client) -> Caller {
        Caller {
            client: client.clone(),
            runtime: self.sim.runtime().clone(),
            ledger: Arc::clone(&self.ledger),
            limit: Duration::from_millis(self.plan.option("timeoutMS")),
            is_calm: self.plan.is_calm(),
        }
    }

    /// Waits for callers and faults.
    async fn wait_for_all(&self) -> Result<(), Broken> {
        loop {
            let (left, faults) = {
                let progress = lock(&self.progress);
                (progress.callers, progress.faults)
            };
            if left + faults == 0 || lock(&self.ledger).broken.is_some() {
                return Ok(());
            }
            law("every caller comes to its end", self.sim.elapsed() < LONGEST, || format!("{left} callers do not"))?;
            self.sim.sleep(Duration::from_millis(100)).await;
        }
    }

    /// What was acknowledged is there once, and nothing else more than once.
    fn orders_are_kept(&self, target: &Target) -> Result<(), Broken> {
        const ONCE: &str = "an acknowledged write is there exactly once";
        let found = target.orders();
        law(ONCE, found.is_some(), || "the servers do not answer".to_owned())?;
        let found = found.unwrap_or_default();
        let twice = found.iter().find(|(_, times)| **times != 1);
        law(ONCE, twice.is_none(), || format!("order and times: {twice:?}"))?;
        let ledger = lock(&self.ledger);
        let lost = ledger.acknowledged.iter().find(|order| !found.contains_key(order));
        law(ONCE, lost.is_none(), || format!("order {lost:?} is not there"))
    }

    /// The servers are well: so is the client. Connections that were lost without a word are found by using them.
    async fn answers(&self, client: &Client) -> Result<(), Broken> {
        let caller = self.caller(client);
        let read = Operation { caller: 0, pause: Duration::ZERO, work: Work::Read(0), patience: Patience::ToTheEnd };
        for _ in 0..=self.plan.option("maxPoolSize").min(10) {
            if caller.operate(read).await > 0 {
                return Ok(());
            }
        }
        law("commands are answered once the faults stop", false, || format!("{:?}", client.description()))
    }
}

/// Nobody uses it.
fn idles(client: &Client) -> Result<(), Broken> {
    client.servers().iter().try_for_each(|server| {
        let counts = &server.stats.counts;
        let idles = counts.in_use == 0 && counts.waiting == 0;
        law("a client that nobody uses lends nothing", idles, || format!("{}: {counts:?}", server.description.address))
    })
}

fn of_stuck(stuck: &Stuck) -> Broken {
    Broken { law: "every task comes to its end", detail: stuck.to_string() }
}

fn of_panic(panic: &(dyn std::any::Any + Send)) -> Broken {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    Broken { law: "nothing panics", detail: text.unwrap_or_default().to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic of another task is a broken law already.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
