//! Tells the handler and the log what happens at a listener; what strangers can cause at will, a few times in a second at most.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cmap_core::time::Instant;

use super::error::SocketEnded;
use super::event::ReverseEvent;
use super::options::Handler;

/// How often sockets that were not parked are reported in a second: each may have another reason, which an operator looks for.
const NOT_PARKED: u32 = 10;

/// Tells events.
pub(super) struct Teller {
    handler: Option<Handler>,
    not_parked: Mutex<Seldom>,
    turned_away: Mutex<Seldom>,
    failed: Mutex<Seldom>,
}

/// Tells so many in a second, and counts the others.
struct Seldom {
    most: u32,
    /// The end of the second.
    until: Instant,
    told: u32,
    others: u64,
}

impl Teller {
    pub(super) fn new(handler: Option<Handler>) -> Self {
        let [not_parked, turned_away, failed] = [NOT_PARKED, 1, 1].map(|most| Mutex::new(Seldom::new(most)));
        Self { handler, not_parked, turned_away, failed }
    }

    pub(super) fn tell(&self, event: &ReverseEvent) {
        // Users' code, whose panics must not end the listener: a stranger can cause events.
        #[cfg(feature = "tracing")]
        let _ = catch_unwind(AssertUnwindSafe(|| record(event)));
        if let Some(handler) = &self.handler {
            let _ = catch_unwind(AssertUnwindSafe(|| handler(event)));
        }
    }

    pub(super) fn tell_not_parked(&self, now: Instant, from: SocketAddr, why: SocketEnded) {
        if let Some(others) = may_tell(&self.not_parked, now) {
            self.tell(&ReverseEvent::NotParked { from, why, others });
        }
    }

    pub(super) fn tell_turned_away(&self, now: Instant, from: SocketAddr, why: SocketEnded) {
        if let Some(others) = may_tell(&self.turned_away, now) {
            self.tell(&ReverseEvent::TurnedAway { from, why, others });
        }
    }

    pub(super) fn tell_accept_failed(&self, now: Instant, error: std::io::Error) {
        if let Some(others) = may_tell(&self.failed, now) {
            self.tell(&ReverseEvent::AcceptFailed { error, others });
        }
    }
}

fn may_tell(seldom: &Mutex<Seldom>, now: Instant) -> Option<u64> {
    seldom.lock().unwrap_or_else(PoisonError::into_inner).may_tell(now)
}

impl Seldom {
    fn new(most: u32) -> Self {
        Self { most, until: Instant::ORIGIN, told: 0, others: 0 }
    }

    /// How many were not told since the last one, if it is time to tell one.
    fn may_tell(&mut self, now: Instant) -> Option<u64> {
        if self.until <= now {
            self.until = now + Duration::from_secs(1);
            self.told = 0;
        }
        if self.told >= self.most {
            self.others += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.others))
    }
}

#[cfg(feature = "tracing")]
fn record(event: &ReverseEvent) {
    const TARGET: &str = "cmap::reverse";
    match event {
        ReverseEvent::Parked { .. } | ReverseEvent::Ended { .. } => tracing::debug!(target: TARGET, "{event}"),
        ReverseEvent::NotParked { .. } | ReverseEvent::TurnedAway { .. } | ReverseEvent::AcceptFailed { .. } => {
            tracing::warn!(target: TARGET, "{event}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_panic_of_the_handler_goes_no_further() {
        let calls = Arc::new(AtomicU32::new(0));
        let called = Arc::clone(&calls);
        let handler: Handler = Arc::new(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            // Without the panic hook, which would fill the test's output.
            std::panic::resume_unwind(Box::new("the user's code panicked"));
        });
        let teller = Teller::new(Some(handler));
        let refused = || std::io::Error::other("refused");

        teller.tell(&ReverseEvent::AcceptFailed { error: refused(), others: 0 });
        teller.tell(&ReverseEvent::AcceptFailed { error: refused(), others: 1 });

        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    fn told(most: u32, times: [u64; 6]) -> [Option<u64>; 6] {
        let mut seldom = Seldom::new(most);
        times.map(|millis| seldom.may_tell(Instant::ORIGIN + Duration::from_millis(millis)))
    }

    #[test]
    fn what_happens_often_is_told_once_in_a_second_with_its_number() {
        assert_eq!(told(1, [0, 1, 999, 1000, 1001, 2500]), [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn what_may_differ_is_told_a_few_times_in_a_second() {
        assert_eq!(told(2, [0, 1, 2, 3, 1000, 1001]), [Some(0), Some(0), None, None, Some(2), Some(0)]);
    }
}
