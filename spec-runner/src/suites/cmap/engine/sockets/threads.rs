//! The threads of a test as other threads see them: their queues, and whether they wait.

use std::collections::{BTreeMap, VecDeque};

use crate::suites::cmap::engine::ActualError;

/// The threads, by name. The main thread is not among them.
#[derive(Debug, Default)]
pub(super) struct Threads(BTreeMap<String, Thread>);

#[derive(Debug, Default)]
struct Thread {
    /// Numbers of steps in the file.
    steps: VecDeque<usize>,
    is_started: bool,
    activity: Activity,
    /// The error that ended it.
    error: Option<ActualError>,
}

/// The activity of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activity {
    /// It has ended a step and not begun another.
    #[default]
    Idle,
    /// It carries out a step.
    Busy,
    /// Its step waits for time, an event or another thread.
    Waits,
    /// Its step waits in a check-out.
    ChecksOut,
    /// As `ChecksOut`, but the check-out must be given up.
    IsCancelled,
}

impl Threads {
    /// Gives `thread` an operation, after all earlier ones. A thread that is not started yet begins with it when it is.
    pub(super) fn give(&mut self, thread: &str, step: usize) {
        self.get_mut(thread).steps.push_back(step);
    }

    pub(super) fn start(&mut self, thread: &str) {
        self.get_mut(thread).is_started = true;
    }

    /// The next step of `thread`, if it has one; the thread is busy with it then.
    pub(super) fn begin_next(&mut self, thread: &str) -> Option<usize> {
        let thread = self.get_mut(thread);
        let step = thread.steps.pop_front()?;
        thread.activity = Activity::Busy;
        Some(step)
    }

    /// `thread` has ended its step.
    pub(super) fn end_step(&mut self, thread: &str, outcome: Result<(), ActualError>) {
        let thread = self.get_mut(thread);
        thread.activity = Activity::Idle;
        thread.error = outcome.err();
    }

    pub(super) fn activity(&self, thread: &str) -> Activity {
        self.0.get(thread).map(|thread| thread.activity).unwrap_or_default()
    }

    pub(super) fn set_activity(&mut self, thread: &str, activity: Activity) {
        self.get_mut(thread).activity = activity;
    }

    /// Whether some thread is busy, or could begin to be.
    pub(super) fn is_any_at_work(&self) -> bool {
        self.0.values().any(|thread| {
            thread.is_started
                && thread.error.is_none()
                && match thread.activity {
                    Activity::Idle => !thread.steps.is_empty(),
                    Activity::Busy | Activity::IsCancelled => true,
                    Activity::Waits | Activity::ChecksOut => false,
                }
        })
    }

    /// How `thread` has ended, if it has: with all its operations done, or with an error.
    pub(super) fn end_of(&self, thread: &str) -> Option<Result<(), ActualError>> {
        let Some(thread) = self.0.get(thread) else { return Some(Ok(())) };
        match &thread.error {
            Some(error) => Some(Err(error.clone())),
            None if thread.is_started && thread.activity == Activity::Idle && thread.steps.is_empty() => Some(Ok(())),
            None => None,
        }
    }

    fn get_mut(&mut self, thread: &str) -> &mut Thread {
        self.0.entry(thread.to_owned()).or_default()
    }
}
