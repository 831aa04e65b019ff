//! The listener as a dialer: where others connect, it takes a socket that an agent has parked.

use std::fmt::Write as _;
use std::future::poll_fn;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::time::Instant;

use super::ReverseListener;
use super::shared::{Closed, DialedStream, Shared, Turn};
use crate::runtime::Runtime;
use crate::time::Clock;

/// The most members that an error names.
const NAMED: usize = 4;

/// The place of a dialer among those that wait, which is given back however the wait ends.
struct Place<'a, R: Runtime> {
    shared: &'a Shared<R>,
    member: &'a ServerAddress,
}

impl<R: Runtime> Drop for Place<'_, R> {
    fn drop(&mut self) {
        self.shared.forget_the_unwanted(self.member);
    }
}

impl<R: Runtime> ReverseListener<R> {
    /// A socket that leads to `member`: one that is parked, or the next that is, if that is before `until`. One whose agent is gone
    /// costs another attempt.
    ///
    /// # Errors
    /// There is none in time, the agent cannot reach its member, or the listener was closed.
    pub(crate) async fn dial(
        &self,
        member: &ServerAddress,
        clock: &Clock<R>,
        until: Option<Instant>,
    ) -> Result<DialedStream<R::Stream>, EstablishError> {
        let shared = &self.open.shared;
        // Before the claims, which are dropped before it.
        let _place = Place { shared, member };
        let mut turn = Turn::Last;
        loop {
            let claim = shared.want(member, turn).map_err(|Closed| {
                let text = "the listener for agents was closed; make a client with a new one";
                EstablishError::new(Phase::Connect, Fault::Other, text)
            })?;
            match clock.before(until, poll_fn(|cx| claim.poll(cx))).await {
                Some(Some(Ok(stream))) => return Ok(stream),
                Some(Some(Err(failure))) => {
                    return Err(EstablishError::new(Phase::Connect, Fault::Network, failure.to_string()));
                }
                // Its agent has gone, or the listener was closed.
                Some(None) => turn = Turn::First,
                None => {
                    let text = if claim.has_begun() { not_started(member) } else { self.no_agent(member) };
                    return Err(EstablishError::new(Phase::Connect, Fault::Timeout, text));
                }
            }
        }
    }

    /// Says which member has no agent, and what others have.
    fn no_agent(&self, member: &ServerAddress) -> String {
        let shared = &self.open.shared;
        let mut text = format!(
            "no agent of {member} has a free socket here, at {}, within connectTimeoutMS; check that its agent runs, dials this \
             address, and speaks for the member by this name",
            shared.address
        );
        let others = shared.members();
        let mut others = others.iter().map(|(other, _)| other).filter(|other| *other != member);
        for (position, other) in others.by_ref().take(NAMED).enumerate() {
            let separator = if position == 0 { "; agents speak for " } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}{other}");
        }
        match others.count() {
            0 => {}
            more => {
                let _ = write!(text, " and {more} more");
            }
        }
        text
    }
}

fn not_started(member: &ServerAddress) -> String {
    format!(
        "the agent of {member} has not connected to it within connectTimeoutMS; check that the member answers beside the agent, and \
         the network between"
    )
}
