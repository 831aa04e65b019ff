//! The limit on new connections, as MongoDB 8 has it: a bucket of tokens, which fills at a constant rate. A connection takes one
//! token. Without a token it waits for the next one in a queue; where the queue is full, it is closed before its first message.

use std::collections::VecDeque;
use std::time::Duration;

use bson::{RawBson, RawDocumentBuf};
use cmap_core::time::Instant;
use cmap_core::wire::integer;

use super::document::document;
use super::failure::fail;
use crate::store::CommandFailure;

/// The parameters' names.
pub(super) const ENABLED: &str = "ingressConnectionEstablishmentRateLimiterEnabled";
pub(super) const RATE: &str = "ingressConnectionEstablishmentRatePerSec";
pub(super) const BURST: &str = "ingressConnectionEstablishmentBurstCapacitySecs";
pub(super) const QUEUE: &str = "ingressConnectionEstablishmentMaxQueueDepth";

/// The limit, and how much of it is used.
#[derive(Debug)]
pub(super) struct Ingress {
    is_enabled: bool,
    /// Tokens in a second.
    rate: f64,
    /// The most tokens, as the seconds in which they come.
    burst: f64,
    /// The most connections that wait.
    queue: usize,
    /// The tokens; less than zero, if connections wait for them.
    tokens: f64,
    counted_at: Instant,
    /// When those that wait get their tokens.
    waiting: VecDeque<Instant>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    attempted: i64,
    queued: i64,
    refused: i64,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    /// When it has its token.
    At(Instant),
    Refused,
}

impl Ingress {
    /// No limit, as a server has it by default.
    pub(super) fn new(now: Instant) -> Self {
        let (rate, burst) = (f64::from(i32::MAX), f64::MAX);
        Self {
            is_enabled: false,
            rate,
            burst,
            queue: 0,
            tokens: f64::MAX,
            counted_at: now,
            waiting: VecDeque::new(),
            totals: Totals::default(),
        }
    }

    /// The parameters with their values.
    pub(super) fn parameters(&self) -> [(&'static str, RawBson); 4] {
        let count = |count: usize| RawBson::Int32(i32::try_from(count).unwrap_or(i32::MAX));
        // A number of an i32 that was set, or the greatest.
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and the rate was an i32")]
        let rate = self.rate as i32;
        [
            (ENABLED, RawBson::Boolean(self.is_enabled)),
            (RATE, RawBson::Int32(rate)),
            (BURST, RawBson::Double(self.burst)),
            (QUEUE, count(self.queue)),
        ]
    }

    /// Sets a parameter, if there is one of this name. The bucket is full after that.
    pub(super) fn set(&mut self, now: Instant, name: &str, value: &RawBson) -> Result<(), CommandFailure> {
        let value = value.as_raw_bson_ref();
        let number = integer(value).map(|number| number as f64).or_else(|| value.as_f64());
        let bad = |expected: &str| fail(2, format!("the parameter {name} must be {expected}"));
        match name {
            ENABLED => {
                let truth = value.as_bool().or_else(|| number.map(|number| number != 0.0));
                self.is_enabled = truth.ok_or_else(|| bad("true or false"))?;
            }
            RATE => {
                let rate = integer(value).and_then(|rate| i32::try_from(rate).ok()).filter(|rate| *rate > 0);
                self.rate = rate.ok_or_else(|| bad("a whole number greater than zero"))?.into();
            }
            BURST => {
                self.burst = number.filter(|burst| *burst > 0.0).ok_or_else(|| bad("a number greater than zero"))?;
            }
            QUEUE => {
                let depth = integer(value).and_then(|depth| i32::try_from(depth).ok());
                let depth = depth.and_then(|depth| usize::try_from(depth).ok());
                self.queue = depth.ok_or_else(|| bad("a whole number, zero or greater"))?;
            }
            _ => return Ok(()),
        }
        (self.tokens, self.counted_at) = (self.capacity(), now);
        Ok(())
    }

    /// A client has connected.
    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        self.totals.attempted += 1;
        if !self.is_enabled {
            return Admission::Now;
        }
        let elapsed = now.saturating_since(self.counted_at).as_secs_f64();
        self.tokens = (self.tokens + self.rate * elapsed).min(self.capacity());
        self.counted_at = now;
        while self.waiting.front().is_some_and(|at| *at <= now) {
            self.waiting.pop_front();
        }
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Admission::Now;
        }
        if self.waiting.len() >= self.queue {
            self.totals.refused += 1;
            return Admission::Refused;
        }
        self.tokens -= 1.0;
        // The rate is at least one, so this is at most as many seconds as connections wait.
        let at = now + Duration::try_from_secs_f64(-self.tokens / self.rate).unwrap_or_default();
        self.waiting.push_back(at);
        self.totals.queued += 1;
        Admission::At(at)
    }

    /// The field `queues.ingressSessionEstablishment` of a server's status.
    pub(super) fn status(&self) -> RawDocumentBuf {
        let Totals { attempted, queued, refused } = self.totals;
        document! {
            "attemptedAdmissions": attempted,
            "successfulAdmissions": attempted - refused,
            "rejectedAdmissions": refused,
            "addedToQueue": queued,
        }
    }

    /// At least one: else nobody could ever connect.
    fn capacity(&self) -> f64 {
        (self.rate * self.burst).max(1.0)
    }
}
