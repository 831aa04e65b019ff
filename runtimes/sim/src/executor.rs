//! The executor: one thread, ready tasks in a seeded order, and a clock that jumps when every task waits.
//!
//! Time passes only here, and only when no task can run. A task that never waits would stop it forever, and tasks that
//! wait for each other would never run again: both end the run, with the names of the tasks.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cmap_core::random::Random;
use slab::Slab;
use thiserror::Error;

/// How often tasks may be polled while time stands still. A burst of a hundred thousand waiters stays far below it.
const MOST_POLLS_AT_ONE_TIME: u32 = 20_000_000;

/// Why a run ended before its future did.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Stuck {
    /// Every task waits, and none for time.
    #[error("after {at:?} of virtual time every task waits for another one: {tasks}; find the wake-up that is missing")]
    Deadlock {
        /// The virtual time since the start.
        at: Duration,
        /// The tasks that wait.
        tasks: TaskNames,
    },
    /// Tasks run on and on, and time stands still.
    #[error(
        "after {at:?} of virtual time these tasks run without end, so that time stands still: {tasks}; let them wait"
    )]
    Spinning {
        /// The virtual time since the start.
        at: Duration,
        /// The tasks that can run.
        tasks: TaskNames,
    },
}

/// The names of tasks: the types of their futures, which say the functions they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskNames(Vec<String>);

/// Tasks, timers and the clock.
pub(crate) struct Executor {
    state: Mutex<State>,
}

struct State {
    /// Nanoseconds since the start.
    now: u64,
    random: Random,
    tasks: Slab<Arc<Task>>,
    ready: Vec<Runnable>,
    timers: BTreeMap<TimerKey, Waker>,
    last_timer: u64,
    ended: bool,
}

/// A timer: when it fires, and its number.
pub(crate) type TimerKey = (u64, u64);

enum Runnable {
    Main,
    Task(Arc<Task>),
}

/// What a task does.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    name: &'static str,
    place: usize,
    executor: Weak<Executor>,
    is_queued: AtomicBool,
    /// `None` while it is polled, and after its end.
    work: Mutex<Option<Work>>,
}

/// The future that a run is for.
struct MainTask {
    executor: Weak<Executor>,
    is_queued: AtomicBool,
}

impl Executor {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                now: 0,
                random: Random::new(seed),
                tasks: Slab::new(),
                ready: Vec::new(),
                timers: BTreeMap::new(),
                last_timer: 0,
                ended: false,
            }),
        })
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.state().now
    }

    /// Runs `work`, whose type has this name, in the background. After the end it is dropped.
    pub(crate) fn spawn(self: &Arc<Self>, name: &'static str, work: Work) {
        // Dropped without the lock.
        let refused = {
            let mut state = self.state();
            if state.ended {
                Some(work)
            } else {
                let entry = state.tasks.vacant_entry();
                let task = Arc::new(Task {
                    name,
                    place: entry.key(),
                    executor: Arc::downgrade(self),
                    is_queued: AtomicBool::new(true),
                    work: Mutex::new(Some(work)),
                });
                entry.insert(Arc::clone(&task));
                state.ready.push(Runnable::Task(task));
                None
            }
        };
        drop(refused);
    }

    /// The number of tasks that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.state().tasks.len()
    }

    /// Wakes `waker` at `at`, unless the timer is removed before.
    pub(crate) fn add_timer(&self, at: u64, waker: Waker) -> TimerKey {
        let mut state = self.state();
        state.last_timer += 1;
        let key = (at, state.last_timer);
        state.timers.insert(key, waker);
        key
    }

    pub(crate) fn remove_timer(&self, key: TimerKey) {
        // The waker is dropped without the lock.
        let _waker = self.state().timers.remove(&key);
    }

    /// Whether tasks are accepted no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Runs until `main` ends.
    ///
    /// # Errors
    /// It can not end: every task waits, or some never does.
    pub(crate) fn run<T>(self: &Arc<Self>, mut main: Pin<&mut dyn Future<Output = T>>) -> Result<T, Stuck> {
        let main_task = Arc::new(MainTask { executor: Arc::downgrade(self), is_queued: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&main_task));
        waker.wake_by_ref();
        let mut polls = 0;
        loop {
            match self.next_runnable() {
                Some(Runnable::Main) => {
                    main_task.is_queued.store(false, Ordering::SeqCst);
                    if let Poll::Ready(output) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return Ok(output);
                    }
                }
                Some(Runnable::Task(task)) => self.poll(&task),
                None if self.advance() => polls = 0,
                None => return Err(Stuck::Deadlock { at: self.age(), tasks: self.names(|_| true) }),
            }
            polls += 1;
            if polls > MOST_POLLS_AT_ONE_TIME {
                let is_ready = |task: &Task| task.is_queued.load(Ordering::SeqCst);
                return Err(Stuck::Spinning { at: self.age(), tasks: self.names(is_ready) });
            }
        }
    }

    /// Drops every task, as a runtime that ends.
    pub(crate) fn end(&self) {
        loop {
            let mut state = self.state();
            state.ended = true;
            let (tasks, ready) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.ready));
            let timers = std::mem::take(&mut state.timers);
            drop(state);
            if tasks.is_empty() && ready.is_empty() && timers.is_empty() {
                return;
            }
            // The futures' destructors may wake, spawn, or remove timers.
            for (_, task) in tasks {
                let work = task.work().take();
                drop(work);
            }
        }
    }

    /// One of the ready tasks, by chance.
    fn next_runnable(&self) -> Option<Runnable> {
        let mut state = self.state();
        let last = (state.ready.len() as u64).checked_sub(1)?;
        let chosen = if last == 0 { 0 } else { state.random.up_to(last) };
        // It was the length of a vector.
        Some(state.ready.swap_remove(usize::try_from(chosen).unwrap_or_default()))
    }

    fn poll(&self, task: &Arc<Task>) {
        task.is_queued.store(false, Ordering::SeqCst);
        let Some(mut work) = task.work().take() else { return };
        let waker = Waker::from(Arc::clone(task));
        if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *task.work() = Some(work);
            return;
        }
        drop(work);
        let _ended = self.state().tasks.try_remove(task.place);
    }

    /// Moves the clock to the next timer. Returns whether there was one.
    fn advance(&self) -> bool {
        let mut state = self.state();
        let Some(((at, _), _)) = state.timers.first_key_value() else { return false };
        let at = *at;
        state.now = state.now.max(at);
        let later = state.timers.split_off(&(at + 1, 0));
        let due = std::mem::replace(&mut state.timers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
        true
    }

    fn age(&self) -> Duration {
        Duration::from_nanos(self.now())
    }

    fn names(&self, is_meant: impl Fn(&Task) -> bool) -> TaskNames {
        let state = self.state();
        let tasks = state.tasks.iter().filter(|(_, task)| is_meant(task));
        TaskNames(tasks.map(|(_, task)| readable(task.name)).collect())
    }

    fn queue(&self, runnable: Runnable) {
        let mut state = self.state();
        if !state.ended {
            state.ready.push(runnable);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    fn work(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst)
            && let Some(executor) = self.executor.upgrade()
        {
            executor.queue(Runnable::Task(self));
        }
    }
}

impl Wake for MainTask {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst)
            && let Some(executor) = self.executor.upgrade()
        {
            executor.queue(Runnable::Main);
        }
    }
}

/// A type's name without what the compiler adds to it.
fn readable(name: &str) -> String {
    let name = name.replace("::{{closure}}", "");
    name.split('<').next().unwrap_or_default().to_owned()
}

impl fmt::Display for TaskNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the main one");
        }
        let mut counts = BTreeMap::<&str, usize>::new();
        for name in &self.0 {
            *counts.entry(name).or_default() += 1;
        }
        for (number, (name, count)) in counts.into_iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            match count {
                1 => write!(f, "{separator}{name}")?,
                _ => write!(f, "{separator}{name} ({count} times)")?,
            }
        }
        Ok(())
    }
}
