//! The work of one command, in steps: a machine without a clock measures time by them.
//!
//! Steps are counted where values are looked at, copied or compared. Once there were too many, tests of documents fail
//! at once, so that loops end soon; check it before you use their results.

use std::cell::Cell;
use std::time::Duration;

use bson::{RawArray, RawBsonRef, RawDocument};

use super::arguments::Arguments;
use super::failure::{CommandFailure, code};
use super::limits::{BYTES_PER_STEP, STEPS_PER_MILLISECOND, StoreLimits};
use super::number::Number;

/// The work of one command so far, and its limits.
#[derive(Debug)]
pub(super) struct Work {
    done: Cell<u64>,
    limit: Cell<u64>,
    /// Whether the client set the limit.
    is_asked_for: Cell<bool>,
    /// The client's limit, which may be higher than the server's.
    asked: Cell<Option<u64>>,
    /// The time for which the command sleeps: no work, but part of its time.
    slept: Cell<Duration>,
    /// The bytes that the command may gather.
    pub(super) bytes: usize,
}

impl Work {
    /// No work yet; the limit is the server's.
    pub(super) fn new(limits: &StoreLimits) -> Self {
        let limit = steps(limits.command_time.as_millis());
        Self {
            done: Cell::new(0),
            limit: Cell::new(limit),
            is_asked_for: Cell::new(false),
            asked: Cell::new(None),
            slept: Cell::new(Duration::ZERO),
            bytes: limits.command_bytes,
        }
    }

    /// No work yet, and no limit, for what may not be left half done.
    pub(super) fn unlimited(&self) -> Self {
        let (done, limit, is_asked_for) = (Cell::new(0), Cell::new(u64::MAX), Cell::new(false));
        let (asked, slept) = (Cell::new(None), Cell::new(Duration::ZERO));
        Self { done, limit, is_asked_for, asked, slept, bytes: usize::MAX }
    }

    /// The steps so far.
    pub(super) fn done(&self) -> u64 {
        self.done.get()
    }

    /// Sets the client's limit, if the server's is not lower.
    pub(super) fn limit(&self, steps: u64) {
        self.asked.set(Some(steps));
        if steps < self.limit.get() {
            self.limit.set(steps);
            self.is_asked_for.set(true);
        }
    }

    /// Whether the client set a limit, higher than the server's or not.
    pub(super) fn has_limit(&self) -> bool {
        self.asked.get().is_some()
    }

    /// The steps left of the client's limit.
    pub(super) fn left(&self) -> Option<u64> {
        self.is_asked_for.get().then(|| self.limit.get().saturating_sub(self.done.get()))
    }

    /// The time that the work so far stands for.
    pub(super) fn time(&self) -> Duration {
        time(self.done.get())
    }

    /// Counts steps.
    pub(super) fn step(&self, steps: u64) {
        self.done.set(self.done.get().saturating_add(steps));
    }

    /// Counts bytes that are copied.
    pub(super) fn copy(&self, bytes: usize) {
        self.step((bytes / BYTES_PER_STEP) as u64);
    }

    /// Sleeps: nothing happens, but the reply comes later.
    pub(super) fn sleep(&self, time: Duration) {
        self.slept.set(self.slept.get().saturating_add(time));
    }

    /// For how long the command sleeps, at most until the client's limit.
    pub(super) fn slept(&self) -> Duration {
        let most = self.asked.get().map_or(Duration::MAX, time);
        self.slept.get().min(most)
    }

    /// Whether there was too much work.
    pub(super) fn is_over(&self) -> bool {
        self.done.get() > self.limit.get() || self.sleeps_too_long()
    }

    fn sleeps_too_long(&self) -> bool {
        let slept = self.slept.get();
        !slept.is_zero() && self.asked.get().is_some_and(|asked| slept > time(asked.saturating_sub(self.done.get())))
    }

    /// Fails if there was too much work.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        if !self.is_over() {
            return Ok(());
        }
        let message = match self.is_asked_for.get() || self.sleeps_too_long() {
            true => "operation exceeded time limit",
            false => "operation exceeded the work that this test server does for one command, whatever its maxTimeMS",
        };
        Err(CommandFailure::new(code::MAX_TIME_MS_EXPIRED, message))
    }

    /// Fails if the command gathers too many bytes.
    pub(super) fn check_bytes(&self, what: &str, bytes: usize) -> Result<(), CommandFailure> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let message = format!("Exceeded memory limit for {what}: more than {} bytes", self.bytes);
        Err(CommandFailure::new(code::EXCEEDED_MEMORY_LIMIT, message))
    }

    /// The values of an array, a step each.
    pub(super) fn values<'a>(&self, array: &'a RawArray) -> impl Iterator<Item = RawBsonRef<'a>> {
        super::arguments::values(array).inspect(|_| self.step(1))
    }

    /// The field of a document; each field before it is a step.
    pub(super) fn get<'a>(&self, document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
        let mut fields = document.iter_elements().map_while(Result::ok);
        let found = fields.find(|field| {
            let key = field.key().as_str();
            self.step(1 + (key.len() / BYTES_PER_STEP) as u64);
            key == name
        });
        found?.try_into().ok()
    }
}

/// The time limit of a command, in steps.
pub(super) fn max_time(arguments: &Arguments<'_>) -> Result<Option<u64>, CommandFailure> {
    let Some(value) = arguments.get("maxTimeMS") else { return Ok(None) };
    let bad = |message: String| Err(CommandFailure::bad_value(message));
    let Some(number) = Number::read(value).and_then(Number::to_integer) else {
        return bad("maxTimeMS must be a number".to_owned());
    };
    match u128::try_from(number) {
        Ok(0) => Ok(None),
        Ok(milliseconds) if milliseconds <= i32::MAX as u128 => Ok(Some(steps(milliseconds))),
        _ => bad(format!("{number} value for maxTimeMS is out of range [0, {}]", i32::MAX)),
    }
}

/// The time that so many steps stand for.
fn time(steps: u64) -> Duration {
    Duration::from_micros(steps.saturating_mul(1000) / STEPS_PER_MILLISECOND)
}

fn steps(milliseconds: u128) -> u64 {
    u64::try_from(milliseconds).unwrap_or(u64::MAX).saturating_mul(STEPS_PER_MILLISECOND)
}

/// The number of comparisons by which one of `count` values in order is found.
pub(super) fn depth(count: usize) -> u64 {
    u64::from(usize::BITS - count.leading_zeros())
}

/// About how many steps it takes to compare with a value.
pub(super) fn weight(value: RawBsonRef<'_>) -> u64 {
    let nested = value.as_document().map(RawDocument::as_bytes).or_else(|| value.as_array().map(RawArray::as_bytes));
    let text = || value.as_str().map(str::len).or_else(|| value.as_binary().map(|binary| binary.bytes.len()));
    let bytes = nested.map(|bytes| bytes.len() / 8).or_else(|| text().map(|length| length / BYTES_PER_STEP));
    1 + bytes.unwrap_or(0) as u64
}
