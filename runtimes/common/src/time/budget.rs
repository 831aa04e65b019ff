//! The time of an operation: until when it may go on, who has set that, and whether its server learns of it.

use std::time::Duration;

use super::command_limit::TimeLimit;
use super::deadline::{Deadline, Limit};
use crate::runtime::Runtime;

/// Until when an operation may go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// `None` is no end.
    pub(crate) until: Option<Deadline>,
    pub(crate) set_by: SetBy,
    /// Whether the server gets to know how long it may work (CSOT-9). It would end a cursor then.
    pub(crate) is_told: bool,
}

/// What set the end of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetBy {
    /// timeoutMS; where it sets no end, socketTimeoutMS limits each command.
    Options,
    /// The caller, who may have lifted all limits.
    Caller,
}

impl Budget {
    /// That of an operation that begins now: by the caller's limit, or else by timeoutMS.
    pub(crate) fn begin<R: Runtime>(runtime: &R, limit: Option<Limit>, timeout: Option<Duration>) -> Self {
        let set_by = if limit.is_some() { SetBy::Caller } else { SetBy::Options };
        let until = limit.unwrap_or_else(|| timeout.into()).deadline(runtime);
        Self { until, set_by, is_told: true }
    }

    /// That of an operation within what ends at `end`, unless its caller has set one (CSOT-27).
    pub(crate) fn inheriting(self, end: Option<Deadline>) -> Self {
        match (self.set_by, end) {
            (SetBy::Options, Some(_)) => Self { until: end, set_by: SetBy::Caller, ..self },
            (SetBy::Options, None) | (SetBy::Caller, _) => self,
        }
    }

    /// For the next wait.
    pub(crate) fn limit(self) -> Limit {
        self.until.map_or(Limit::None, Limit::Until)
    }

    /// The time left; `None` is no limit.
    pub(crate) fn left<R: Runtime>(self, runtime: &R) -> Option<Duration> {
        self.limit().left(runtime)
    }

    /// For the next command; `of_options` limits each command where nothing limits the operation.
    pub(crate) fn command_limit<R: Runtime>(self, runtime: &R, of_options: Option<TimeLimit>) -> Option<TimeLimit> {
        let limit = match (self.set_by, self.is_told) {
            (_, false) => TimeLimit::Iteration,
            (SetBy::Options, true) => TimeLimit::Operation,
            (SetBy::Caller, true) => TimeLimit::Caller,
        };
        // What ends beyond what the clock can show has no end.
        let until = self.until.filter(|until| until.at().is_some());
        let left = until.map(|until| limit(until.left(runtime)));
        left.or(of_options.filter(|_| self.set_by == SetBy::Options))
    }
}
