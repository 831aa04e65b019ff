//! The time limits of one establishment.

use std::future::Future;
use std::iter;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::pool::PhaseTimes;
use cmap_core::time::Instant;

use super::Establisher;
use crate::runtime::Runtime;
use crate::socket::abort::{Abort, AbortReason};
use crate::time::{Clock, TimeLimit};

/// The limits of one establishment.
pub(super) struct Limit {
    abort: Arc<Abort>,
    pub(super) now: Box<dyn Fn() -> Instant + Send + Sync>,
    /// How long the phases took until now.
    pub(super) took: PhaseTimes,
    pub(super) deadline: Option<Instant>,
    /// connectTimeoutMS.
    whole: Timer,
    /// That of the present command, if it has one of its own (CSOT-13, X-17).
    pub(super) command: Option<Timer>,
}

/// A limit that ends.
pub(super) struct Timer {
    sleep: Pin<Box<dyn Future<Output = ()> + Send>>,
    limit: Duration,
    /// The option that sets it.
    option: &'static str,
}

impl Limit {
    pub(super) fn new<R: Runtime>(establisher: &Establisher<R>, abort: Arc<Abort>) -> Self {
        let clock = establisher.settings.clock.clone();
        let deadline = clock.deadline(establisher.settings.timeout);
        let whole =
            Timer::until(&clock, deadline, establisher.settings.timeout.unwrap_or_default(), "connectTimeoutMS");
        let now = Box::new(move || clock.now());
        Self { abort, now, took: PhaseTimes::default(), deadline, whole, command: None }
    }

    /// `work`, which is a part of `phase`, unless time is up or it is aborted.
    pub(super) async fn during<T>(&mut self, phase: Phase, work: impl Future<Output = T>) -> Result<T, EstablishError> {
        self.abort.enter(phase);
        let began = (self.now)();
        let mut work = pin!(work);
        let (whole, command) = (&mut self.whole, &mut self.command);
        let timed = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => {
                let mut timers = iter::once(&mut *whole).chain(command.as_mut());
                match timers.find_map(|timer| timer.sleep.as_mut().poll(cx).is_ready().then(|| timer.error(phase))) {
                    Some(error) => Poll::Ready(Err(error)),
                    None => Poll::Pending,
                }
            }
        });
        let ended = self.abort.during(timed).await;
        self.took.add(phase, (self.now)().saturating_since(began));
        match ended {
            Ok(ended) => ended,
            Err(cut) => Err(EstablishError::new(phase, Fault::Other, reason(cut))),
        }
    }
}

impl Timer {
    fn until<R: Runtime>(clock: &Clock<R>, deadline: Option<Instant>, limit: Duration, option: &'static str) -> Self {
        let clock = clock.clone();
        let sleep = async move {
            match deadline {
                Some(deadline) => clock.sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        Self { sleep: Box::pin(sleep), limit, option }
    }

    /// The limit of a command that begins now.
    pub(super) fn of_command<R: Runtime>(clock: &Clock<R>, limit: TimeLimit) -> Self {
        let option = if limit.is_of_operation() { "timeoutMS" } else { "socketTimeoutMS" };
        Self::until(clock, clock.deadline(Some(limit.duration())), limit.duration(), option)
    }

    fn error(&self, phase: Phase) -> EstablishError {
        let Self { limit, option, .. } = self;
        let text = format!("no answer within {limit:?}; is the server there? {option} allows more");
        EstablishError::new(phase, Fault::Timeout, text)
    }
}

fn reason(cut: AbortReason) -> &'static str {
    match cut {
        AbortReason::Interrupted => "it was interrupted, since a check of the server timed out",
        AbortReason::TimedOut => "its time was up",
        AbortReason::Closed => "the client was closed",
        AbortReason::RuntimeGone => "the client's runtime has ended",
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::socket;
    use crate::socket::read_budget::tests::flood;

    #[test]
    fn a_time_limit_passes_while_the_server_sends_without_end_x_17() {
        let mut limit = Limit {
            abort: Arc::default(),
            now: Box::new(|| Instant::ORIGIN),
            took: PhaseTimes::default(),
            deadline: None,
            whole: Timer { sleep: Box::pin(async {}), limit: Duration::from_secs(1), option: "connectTimeoutMS" },
            command: None,
        };
        let mut stream = flood(100);
        let reading = async {
            for _ in 0..1000 {
                assert!(socket::read(&mut stream, &mut [0; 4096]).await.is_ok());
            }
        };

        let outcome = pin!(limit.during(Phase::Hello, reading)).poll(&mut Context::from_waker(Waker::noop()));

        let Poll::Ready(outcome): Poll<Result<(), _>> = outcome else { panic!("its time is up") };
        assert_eq!(outcome.map_err(|error| (error.phase, error.fault)), Err((Phase::Hello, Fault::Timeout)));
    }
}
