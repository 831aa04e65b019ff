//! What commands have failed by: whose, which, and why, by the code alone. Messages of servers quote what commands contain.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::RawDocument;
use cmap_core::time::Instant;
use cmap_core::wire::CommandReply;
use serde::Serialize;

use crate::users::listed_name;

/// How many kinds of failures are kept.
const MOST: usize = 100;

/// How long a code's name may be.
const LONGEST_NAME: usize = 64;

/// Why a command has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Why {
    pub(super) code: Option<i32>,
    pub(super) name: String,
}

/// Failures of one kind.
#[derive(Clone, Copy, Debug)]
struct Counted {
    count: u64,
    last: Instant,
}

/// The kinds of failures that have happened lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(BTreeMap<Kind, Counted>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    user: Arc<str>,
    command: &'static str,
    why: Why,
}

/// Failures of one kind, as the status shows them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FailureLine {
    pub(super) user: Arc<str>,
    /// From the list of ordinary ones, or `other`.
    pub(super) command: &'static str,
    pub(super) code: Option<i32>,
    /// The code's name.
    pub(super) reason: String,
    pub(super) count: u64,
    /// How many seconds ago the last one was.
    pub(super) ago: f64,
}

impl Why {
    /// What a reply says, if it is an error.
    pub(super) fn of(reply: &RawDocument) -> Self {
        let error = CommandReply::read(reply).failure();
        error.map_or_else(Self::default, |error| Self::new(error.code, error.code_name.as_deref().unwrap_or_default()))
    }

    pub(super) fn new(code: Option<i32>, name: &str) -> Self {
        Self { code, name: name.chars().filter(|it| !it.is_control()).take(LONGEST_NAME).collect() }
    }
}

impl Failures {
    /// A command has failed.
    pub(super) fn note(&mut self, now: Instant, user: &Arc<str>, command: &str, why: Why) {
        let kind = Kind { user: Arc::clone(user), command: listed_name(command), why };
        if !self.0.contains_key(&kind) && self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(_, counted)| counted.last).map(|(kind, _)| kind.clone());
            oldest.into_iter().for_each(|kind| _ = self.0.remove(&kind));
        }
        let counted = self.0.entry(kind).or_insert(Counted { count: 0, last: now });
        (counted.count, counted.last) = (counted.count + 1, now);
    }

    /// The latest first.
    pub(super) fn report(&self, now: Instant) -> Vec<FailureLine> {
        let mut kinds: Vec<_> = self.0.iter().collect();
        kinds.sort_by_key(|(_, counted)| core::cmp::Reverse(counted.last));
        let line = |(kind, counted): (&Kind, &Counted)| FailureLine {
            user: Arc::clone(&kind.user),
            command: kind.command,
            code: kind.why.code,
            reason: kind.why.name.clone(),
            count: counted.count,
            ago: now.saturating_since(counted.last).as_secs_f64(),
        };
        kinds.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use bson::rawdoc;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn failures_of_a_kind_are_one_line_which_has_the_code_and_not_the_message() {
        let (mut failures, user) = (Failures::default(), "anna".into());
        let reply =
            rawdoc! { "ok": 0.0, "code": 11_000, "codeName": "DuplicateKey", "errmsg": "dup key: { pin: 4711 }" };
        failures.note(at(1), &user, "insert", Why::of(&reply));
        failures.note(at(2), &user, "madeUp", Why::new(Some(59), "CommandNotFound"));
        failures.note(at(3), &user, "insert", Why::of(&reply));

        let lines = failures.report(at(10));

        let line = |command, code, reason: &str, count, ago| FailureLine {
            user: "anna".into(),
            command,
            code: Some(code),
            reason: reason.into(),
            count,
            ago,
        };
        assert_eq!(
            lines,
            [line("insert", 11_000, "DuplicateKey", 2, 7.0), line("other", 59, "CommandNotFound", 1, 8.0)]
        );
    }

    #[test]
    fn a_limited_number_of_kinds_is_kept_and_those_that_happened_longest_ago_go() {
        let mut failures = Failures::default();
        for number in 0..=MOST {
            let user = number.to_string().into();
            failures.note(at(number as u64), &user, "find", Why::default());
        }

        let lines = failures.report(at(1_000));

        assert_eq!((lines.len(), &*lines[0].user, &*lines[MOST - 1].user), (MOST, "100", "1"));
    }
}
