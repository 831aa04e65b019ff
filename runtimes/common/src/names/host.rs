//! Opening a socket to a host that has several addresses: attempts that overlap, as in RFC 8305.
//!
//! An address that hangs must cost neither the connection nor its time. So the next attempt begins when the one before
//! has failed, or 250 ms after it began. The first attempt that succeeds wins, and the others are dropped. The address
//! that worked last comes first; after it, IPv6 and IPv4 take turns.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use cmap_core::time::Instant;
use thiserror::Error;

use crate::net;
use crate::runtime::{Runtime, Target};
use crate::time::Clock;

/// The head start of an attempt (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// A host cannot be connected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
    /// Its name has no address.
    #[error("the name {host:?} cannot be resolved ({problem}); check it, and DNS")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        problem: io::Error,
    },
    /// None of its addresses can be connected.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// No address of a host can be connected. `Display` names each with its problem.
#[derive(Debug)]
pub struct Unreachable(pub(crate) Vec<(Target, Problem)>);

/// The problem of an address.
#[derive(Debug)]
pub(crate) enum Problem {
    Failed(io::Error),
    /// It did not answer in time.
    Silent,
    /// There was no time to try it.
    Untried,
}

/// The address of a host that worked last. It is kept as long as the host is connected again and again.
#[derive(Debug, Default)]
pub struct LastAddress(Mutex<Option<Target>>);

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

/// Opens a socket to `host` within `limit`, which includes the look-up of its name. The address that worked `last` is tried first.
///
/// # Errors
/// The name has no address, or none of its addresses could be connected in time; the error names the problem of each.
pub async fn connect<R: Runtime>(
    clock: &Clock<R>,
    host: &str,
    port: u16,
    last: &LastAddress,
    limit: Duration,
) -> Result<R::Stream, HostError> {
    let until = clock.now() + limit;
    let runtime = clock.runtime();
    let unresolved = |problem| HostError::Resolve { host: host.to_owned(), problem };
    let targets = match without_look_up(host) {
        Some(known) => known.into_iter().map(|address| Target::Tcp(SocketAddr::new(address, port))).collect(),
        None => {
            let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
            let found = clock.within(limit, runtime.resolve(host, port)).await;
            let found = found.unwrap_or_else(|| Err(silent())).map_err(unresolved)?;
            found.into_iter().map(Target::Tcp).collect::<Vec<_>>()
        }
    };
    if targets.is_empty() {
        return Err(unresolved(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(race(clock, last, targets, Some(until), |target| runtime.connect(target)).await?)
}

/// IP addresses, and localhost, which is both loopback addresses whatever the system's files say: servers often listen
/// on one of them only.
pub(crate) fn without_look_up(host: &str) -> Option<Vec<IpAddr>> {
    if host == "localhost" {
        return Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    Some(vec![host.parse().ok()?])
}

/// Connects to one of `targets` by `connect`, until the deadline if there is one.
///
/// # Errors
/// No address could be reached; the error names the problem of each.
pub(crate) async fn race<'a, R, F, W>(
    clock: &Clock<R>,
    last: &LastAddress,
    targets: Vec<Target>,
    until: Option<Instant>,
    connect: F,
) -> Result<R::Stream, Unreachable>
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
            Step::NextAttempt => return Err(race.into_unreachable()),
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

    fn into_unreachable(self) -> Unreachable {
        let attempted = self.attempts.into_iter().map(|Attempt { target, state }| match state {
            State::Failed(error) => (target, Problem::Failed(error)),
            State::Running(_) => (target, Problem::Silent),
        });
        let untried = self.untried.into_iter().rev().map(|target| (target, Problem::Untried));
        Unreachable(attempted.chain(untried).collect())
    }
}

impl Unreachable {
    /// Each address and its problem; `silence` is that of one that did not answer.
    pub(crate) fn text(&self, silence: &str) -> String {
        let lines = self.0.iter().map(|(target, problem)| match problem {
            Problem::Failed(error) => {
                format!("{}: {error}{}{}", name(target), net::advice(error), advice_on_zone(target, error))
            }
            Problem::Silent => format!("{}: {silence}", name(target)),
            Problem::Untried => format!("{}: there was no time to try it", name(target)),
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// Whether the machine is there, and nothing listens.
    pub(crate) fn is_refused(&self) -> bool {
        let is_refusal = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.0.iter().any(|(_, problem)| matches!(problem, Problem::Failed(error) if is_refusal(error)))
    }

    /// Whether more time could have helped.
    pub(crate) fn ran_out_of_time(&self) -> bool {
        self.0.iter().any(|(_, problem)| matches!(problem, Problem::Silent | Problem::Untried))
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text("no answer in time"))
    }
}

/// `Display` has said all.
impl Error for Unreachable {}

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

/// What is missing where a link-local address, which every network has, was connected without a zone.
fn advice_on_zone(target: &Target, error: &io::Error) -> &'static str {
    let has_no_zone = |target: &Target| matches!(target, Target::Tcp(SocketAddr::V6(v6)) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0);
    if error.kind() == io::ErrorKind::InvalidInput && has_no_zone(target) {
        "; add the network interface to the link-local address, as in [fe80::1%25eth0]"
    } else {
        ""
    }
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

    #[test]
    fn addresses_and_localhost_need_no_look_up() {
        assert_eq!(without_look_up("127.0.0.1"), Some(vec![Ipv4Addr::LOCALHOST.into()]));
        assert_eq!(without_look_up("::1"), Some(vec![Ipv6Addr::LOCALHOST.into()]));
        assert_eq!(without_look_up("localhost").map(|found| found.len()), Some(2));
        assert_eq!(without_look_up("db.example"), None);
    }

    #[test]
    fn a_link_local_address_without_a_zone_says_what_is_missing() {
        let text = |address: &str| {
            let failed = |target| (target, Problem::Failed(io::ErrorKind::InvalidInput.into()));
            Unreachable(targets(&[address]).into_iter().map(failed).collect()).text("")
        };

        assert!(
            text("[fe80::1]:27017")
                .ends_with("add the network interface to the link-local address, as in [fe80::1%25eth0]")
        );
        assert!(!text("[fe80::1%2]:27017").contains("interface") && !text("[::1]:27017").contains("interface"));
    }

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
