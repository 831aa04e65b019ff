//! Opening a socket to a host that has several addresses: attempts that overlap, as in RFC 8305.
//!
//! An address that hangs must cost neither the connection nor its time. So the next attempt begins when the one before
//! has failed, or 250 ms after it began. The first attempt that succeeds wins, and the others are dropped. The address
//! that worked last comes first; after it, IPv6 and IPv4 take turns.

use std::fmt::Write;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::time::Instant;

use crate::clock::Clock;
use crate::net;
use crate::runtime::{Runtime, Target};

/// The head start of an attempt (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// The address of a host that worked last.
#[derive(Debug, Default)]
pub(crate) struct LastAddress(Mutex<Option<Target>>);

/// Attempts to reach one host.
struct Race<'a, S, F> {
    connect: F,
    /// The addresses not tried yet, the next one last.
    untried: Vec<Target>,
    attempts: Vec<Attempt<'a, S>>,
}

struct Attempt<'a, S> {
    target: Target,
    state: State<'a, S>,
}

enum State<'a, S> {
    Running(Pin<Box<dyn Future<Output = io::Result<S>> + Send + 'a>>),
    Failed(io::Error),
}

/// Connects to one of `targets` by `connect`, until the deadline if there is one.
///
/// # Errors
/// No address could be reached; the error names the fault of each.
pub(crate) async fn connect<'a, R, F, W>(
    clock: &Clock<R>,
    last: &LastAddress,
    targets: Vec<Target>,
    until: Option<Instant>,
    connect: F,
) -> Result<R::Stream, EstablishError>
where
    R: Runtime,
    F: FnMut(Target) -> W,
    W: Future<Output = io::Result<R::Stream>> + Send + 'a,
{
    let mut untried = in_order(targets, last.get());
    untried.reverse();
    let mut race = Race { connect, untried, attempts: Vec::new() };
    loop {
        race.begin_next();
        let head_start = clock.now() + HEAD_START;
        let wake_at = match until {
            Some(until) if race.untried.is_empty() => Some(until),
            None if race.untried.is_empty() => None,
            until => Some(until.map_or(head_start, |until| until.min(head_start))),
        };
        let mut timer = Box::pin(async move {
            match wake_at {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        });
        let won = poll_fn(|cx| match race.poll(cx) {
            Poll::Ready(step) => Poll::Ready(step),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| Step::NextAttempt),
        });
        match won.await {
            Step::Connected(target, stream) => {
                last.set(target);
                return Ok(stream);
            }
            Step::NextAttempt if until.is_none_or(|until| clock.now() < until) && race.may_go_on() => {}
            Step::NextAttempt => return Err(race.error()),
        }
    }
}

/// The next event among the attempts.
enum Step<S> {
    Connected(Target, S),
    /// An attempt has failed, or has had its head start.
    NextAttempt,
}

impl<'a, S, F, W> Race<'a, S, F>
where
    F: FnMut(Target) -> W,
    W: Future<Output = io::Result<S>> + Send + 'a,
{
    fn begin_next(&mut self) {
        if let Some(target) = self.untried.pop() {
            let state = State::Running(Box::pin((self.connect)(target.clone())));
            self.attempts.push(Attempt { target, state });
        }
    }

    /// Whether an untried or pending attempt remains.
    fn may_go_on(&self) -> bool {
        let is_running = |attempt: &Attempt<'_, S>| matches!(attempt.state, State::Running(_));
        !self.untried.is_empty() || self.attempts.iter().any(is_running)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step<S>> {
        let mut has_failed = false;
        for Attempt { target, state } in &mut self.attempts {
            if let State::Running(work) = state
                && let Poll::Ready(outcome) = work.as_mut().poll(cx)
            {
                match outcome {
                    Ok(stream) => return Poll::Ready(Step::Connected(target.clone(), stream)),
                    Err(error) => *state = State::Failed(error),
                }
                has_failed = true;
            }
        }
        if has_failed { Poll::Ready(Step::NextAttempt) } else { Poll::Pending }
    }

    /// The faults of all addresses.
    ///
    /// If this process has no descriptors left, that is an error of connecting like any other. Its labels (CMAP-50)
    /// have the right effect: the server is not at fault, so nothing is cleared (SDAM-7), and a later attempt may work.
    fn error(&self) -> EstablishError {
        let mut text = String::new();
        let mut fault = Fault::Network;
        for Attempt { target, state } in &self.attempts {
            let separator = if text.is_empty() { "" } else { "; " };
            let problem = match state {
                State::Failed(error) => format!("{error}{}", net::advice(error)),
                State::Running(_) => {
                    fault = Fault::Timeout;
                    "no answer within connectTimeoutMS".to_owned()
                }
            };
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}{}: {problem}", name(target));
        }
        let refused = |attempt: &Attempt<_>| match &attempt.state {
            State::Failed(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            State::Running(_) => false,
        };
        if self.attempts.iter().any(refused) {
            text.push_str("; check that MongoDB runs there and listens at this port");
        }
        for target in self.untried.iter().rev() {
            fault = Fault::Timeout;
            let _ = write!(text, "; {}: there was no time to try it", name(target));
        }
        EstablishError::new(Phase::Connect, fault, text)
    }
}

impl LastAddress {
    fn get(&self) -> Option<Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, target: Target) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }
}

/// The order in which addresses are tried.
fn in_order(targets: Vec<Target>, last: Option<Target>) -> Vec<Target> {
    let is_v6 = |target: &Target| matches!(target, Target::Tcp(SocketAddr::V6(_)));
    let first_is_v6 = targets.first().is_some_and(is_v6);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for target in targets {
        if is_v6(&target) == first_is_v6 { one.push(target) } else { other.push(target) }
    }
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut ordered = Vec::new();
    loop {
        let pair = [one.next(), other.next()];
        if pair.iter().all(Option::is_none) {
            break;
        }
        ordered.extend(pair.into_iter().flatten());
    }
    if let Some(place) = last.and_then(|last| ordered.iter().position(|target| *target == last)) {
        let last = ordered.remove(place);
        ordered.insert(0, last);
    }
    ordered
}

fn name(target: &Target) -> String {
    match target {
        Target::Tcp(address) => address.to_string(),
        #[cfg(unix)]
        Target::Unix(path) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(addresses: &[&str]) -> Vec<Target> {
        addresses.iter().map(|address| Target::Tcp(address.parse().unwrap())).collect()
    }

    #[test]
    fn families_take_turns_beginning_with_the_systems_choice() {
        let ordered = in_order(targets(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]), None);

        assert_eq!(ordered, targets(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]));
    }

    #[test]
    fn the_address_that_worked_last_comes_first() {
        let last = targets(&["2.2.2.2:1"]).pop();

        let ordered = in_order(targets(&["1.1.1.1:1", "2.2.2.2:1", "[::1]:1"]), last);

        assert_eq!(ordered, targets(&["2.2.2.2:1", "1.1.1.1:1", "[::1]:1"]));
    }

    #[test]
    fn an_address_that_worked_once_and_is_gone_is_not_tried() {
        let last = targets(&["9.9.9.9:1"]).pop();

        assert_eq!(in_order(targets(&["1.1.1.1:1"]), last), targets(&["1.1.1.1:1"]));
    }
}
