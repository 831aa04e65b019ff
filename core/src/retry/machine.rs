//! The decisions about one operation: after each failure whether, when and where to try again, and which of its errors to
//! report.
//!
//! | operation | the error to report |
//! |---|---|
//! | read | the latest one of a server or of the network; client-side errors only if there is no other (RTY-10) |
//! | any other | the latest one of an attempt that was sent, without NoWritesPerformed; if there is none, the first one (RTY-11, BP-11) |
//!
//! A failed selection is reported only if it was the first attempt (RTY-9).

use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::failure::{ErrorLabel, Failure, FailureKind, LABELS_ITS_ERRORS, Labels};
use super::policy::{RetryLimit, RetryPolicy};
use super::rest::rest;
use super::retryability::{OnceReason, RetryOption, Retryability};
use crate::address::ServerAddress;
use crate::random::Random;
use crate::time::{Instant, nanos};
use crate::topology::TopologyType;

/// The pause before the first retry of a refused operation is twice this at most (BP-3).
const BASE_BACKOFF: Duration = Duration::from_millis(100);

/// The longest pause (BP-3).
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The retries of one operation.
///
/// Call [`begin`](Self::begin) when an attempt has its server, and [`handle_failure`](Self::handle_failure) when an attempt has
/// failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    policy: RetryPolicy,
    retryability: Retryability,
    deadline: Option<Instant>,
    random: Random,
    /// Retries so far.
    retries: u32,
    /// Whether an overloaded server has refused it.
    met_overload: bool,
    /// Whether it was sent with a transaction number.
    was_numbered: bool,
    /// Whether it has failed before.
    has_failed: bool,
    deprioritized: Vec<ServerAddress>,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The error that stands for the operation from here on.
    pub report: Which,
    /// What to do.
    pub next: Next,
}

/// An error of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// This one.
    This,
    /// The one that stood for the operation before.
    Earlier,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// Try again then, which may be at once.
    RetryAt(Instant),
    /// Report the error.
    GiveUp(GiveUp),
}

/// Why an operation is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum GiveUp {
    /// A repetition would fail in the same way, as far as is known.
    #[error("the error is not one that passes")]
    NotRetryable,
    /// The error may pass, but the operation must not be repeated.
    #[error("{0}")]
    RunsOnce(OnceReason),
    /// `retryReads` or `retryWrites` is off.
    #[error("retries are switched off")]
    SwitchedOff,
    /// It was tried as often as is allowed.
    #[error("no further retry is allowed")]
    Exhausted,
    /// There is no time left, or the pause would last longer.
    #[error("there is no time left")]
    NoTimeLeft,
}

/// The server of an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedServer<'a> {
    /// Its address.
    pub address: &'a ServerAddress,
    /// Whether it is a mongos, which has tried again itself.
    pub is_mongos: bool,
    /// The newest version of the protocol that it speaks.
    pub max_wire_version: i32,
}

/// How to send an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbering {
    /// Without a transaction number.
    None,
    /// With a transaction number, the same on each attempt (RTY-7).
    Numbered,
    /// Not at all: the write may have been carried out, and this server would not recognise it. Report the earlier error.
    Refused,
}

impl Retry {
    /// No attempt has been made. `seed` is the chance of its pauses.
    pub fn new(policy: RetryPolicy, retryability: Retryability, deadline: Option<Instant>, seed: u64) -> Self {
        Self {
            policy,
            retryability,
            deadline,
            random: Random::new(seed),
            retries: 0,
            met_overload: false,
            was_numbered: false,
            has_failed: false,
            deprioritized: Vec::new(),
        }
    }

    /// What the operation is to send is known from here on, and with it whether it may be repeated. To be called before
    /// [`begin`](Self::begin).
    pub fn judge(&mut self, retryability: Retryability) {
        self.retryability = retryability;
    }

    /// How often it was tried again.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// The servers that the next attempt avoids, if another one suits (SEL-10).
    pub fn deprioritized(&self) -> &[ServerAddress] {
        &self.deprioritized
    }

    /// An attempt has a connection: how to send it (RTY-8). A write to a server without transaction numbers runs once.
    pub fn begin(&mut self, has_transaction_numbers: bool) -> Numbering {
        if self.retryability != Retryability::Write || !self.policy.retry_writes {
            return Numbering::None;
        }
        if has_transaction_numbers {
            self.was_numbered = true;
            return Numbering::Numbered;
        }
        if self.was_numbered {
            return Numbering::Refused;
        }
        self.retryability =
            Retryability::OverloadOnly { option: RetryOption::Writes, reason: OnceReason::NotSupported };
        Numbering::None
    }

    /// The labels of an attempt's failure, with the one that the client itself gives to a write that may be repeated (RTY-5).
    pub fn labels(&self, failure: &Failure, server: Option<FailedServer<'_>>) -> Labels {
        let is_write = self.retryability == Retryability::Write && self.policy.retry_writes;
        if is_write && is_retryable_write(failure, server) {
            failure.labels.with(ErrorLabel::RetryableWriteError)
        } else {
            failure.labels
        }
    }

    /// An attempt has failed, at `server` if it had got one, in a topology of this type.
    pub fn handle_failure(
        &mut self,
        now: Instant,
        failure: &Failure,
        server: Option<FailedServer<'_>>,
        topology: TopologyType,
    ) -> Decision {
        self.met_overload |= failure.is_overload();
        let report = self.rate(failure);
        let next = match self.refusal(now, failure, server) {
            Some(reason) => Next::GiveUp(reason),
            None => self.retry(now, failure),
        };
        if let (Next::RetryAt(_), Some(server)) = (next, server) {
            self.deprioritize(failure, server, topology);
        }
        Decision { report, next }
    }

    /// Whether the failure's error is the one to report from here on.
    fn rate(&mut self, failure: &Failure) -> Which {
        let wrote_nothing = failure.labels.has(ErrorLabel::NoWritesPerformed);
        let replaces = if self.retryability.reads() {
            match failure.kind {
                // A pool that another operation's error has cleared says less than the error of an attempt.
                FailureKind::Selection
                | FailureKind::NotSentInTime
                | FailureKind::Client
                | FailureKind::PoolCleared => false,
                FailureKind::Establish(_) | FailureKind::Network => true,
                FailureKind::Server { .. } | FailureKind::WriteConcern { .. } => true,
            }
        } else {
            failure.is_of_sent_command() && !wrote_nothing
        };
        let had_failed = core::mem::replace(&mut self.has_failed, true);
        if replaces || !had_failed { Which::This } else { Which::Earlier }
    }

    fn refusal(&self, now: Instant, failure: &Failure, server: Option<FailedServer<'_>>) -> Option<GiveUp> {
        let option = match self.retryability {
            Retryability::Read if failure.is_retryable_read() || failure.is_retryable_overload() => RetryOption::Reads,
            Retryability::Write if is_retryable_write(failure, server) || failure.is_retryable_overload() => {
                RetryOption::Writes
            }
            Retryability::OverloadOnly { option, .. } if failure.is_retryable_overload() => option,
            Retryability::OverloadOnly { reason, .. }
                if failure.is_retryable_read() || is_retryable_write(failure, server) =>
            {
                return Some(GiveUp::RunsOnce(reason));
            }
            Retryability::Read | Retryability::Write | Retryability::OverloadOnly { .. } => {
                return Some(GiveUp::NotRetryable);
            }
        };
        let is_allowed = match option {
            RetryOption::Reads => self.policy.retry_reads,
            RetryOption::Writes => self.policy.retry_writes,
            RetryOption::Both => self.policy.retry_reads && self.policy.retry_writes,
        };
        let most = match (self.met_overload, self.policy.limit) {
            // BP-9: it binds retries after other errors, too.
            (true, _) => self.policy.max_adaptive_retries,
            (false, RetryLimit::Once) => 1,
            (false, RetryLimit::WhileTimeLasts) => u32::MAX,
        };
        if !is_allowed {
            Some(GiveUp::SwitchedOff)
        } else if self.retries >= most {
            Some(GiveUp::Exhausted)
        } else if self.deadline.is_some_and(|deadline| deadline <= now) {
            Some(GiveUp::NoTimeLeft)
        } else {
            None
        }
    }

    fn retry(&mut self, now: Instant, failure: &Failure) -> Next {
        let at = if failure.is_overload() {
            now + self.backoff(failure.base_backoff)
        } else if self.met_overload {
            now
        } else {
            now + rest(self.retries, &mut self.random)
        };
        if self.deadline.is_some_and(|deadline| deadline <= at) {
            // BP-5.
            return Next::GiveUp(GiveUp::NoTimeLeft);
        }
        self.retries += 1;
        Next::RetryAt(at)
    }

    /// A pause before the next retry, by chance up to a limit that doubles with each (BP-3, BP-8).
    fn backoff(&mut self, base: Option<Duration>) -> Duration {
        let base = base.unwrap_or(BASE_BACKOFF);
        let number = self.retries.saturating_add(1);
        let most = 1_u32.checked_shl(number).and_then(|factor| base.checked_mul(factor)).unwrap_or(MAX_BACKOFF);
        let most = nanos(most.min(MAX_BACKOFF));
        Duration::from_nanos(self.random.up_to(most.saturating_sub(1)))
    }

    /// always in a sharded cluster, elsewhere an overloaded server, where the client's options say so.
    fn deprioritize(&mut self, failure: &Failure, server: FailedServer<'_>, topology: TopologyType) {
        let retargets = topology == TopologyType::Sharded || failure.is_overload() && self.policy.overload_retargeting;
        if retargets && !self.deprioritized.contains(server.address) {
            self.deprioritized.push(server.address.to_owned());
        }
    }
}

/// Whether a write with a transaction number may be repeated after this failure, at a server of this kind.
fn is_retryable_write(failure: &Failure, server: Option<FailedServer<'_>>) -> bool {
    let labels_itself = server.is_none_or(|server| server.max_wire_version >= LABELS_ITS_ERRORS);
    failure.is_retryable_write(labels_itself, server.is_some_and(|server| server.is_mongos))
}
