//! One case: the reference, driven by steps that are resolved against its state.

use cmap_core::pool::{ApiMisuse, PoolState};

use super::reference::{Answer, Connection, Reference, State};
use super::transition::{Call, Named, Options, Pick, Step, Time};

/// The reference after a step, and the call that the step turned out to be.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) reference: Reference,
    pub(crate) steps: usize,
    /// The last call with the caller's time, and what the reference answered.
    pub(crate) made: Option<Made>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) now: u64,
    pub(crate) call: Call<Named>,
    pub(crate) answer: Result<Answer, ApiMisuse>,
}

impl Case {
    pub(crate) fn new(options: Options) -> Self {
        Self { reference: Reference::new(options), steps: 0, made: None }
    }

    /// Makes the call that a step turns out to be.
    pub(crate) fn step(&mut self, step: &Step) {
        self.steps += 1;
        let (now, call) = (self.now(step.time), self.resolve(step.call));
        self.make(now, call);
    }

    /// Makes a call; the outputs of the one before are forgotten.
    pub(crate) fn make(&mut self, now: u64, call: Call<Named>) {
        self.reference.outputs.clear();
        let answer = self.reference.apply(now, call);
        self.made = Some(Made { now, call, answer });
    }

    fn now(&self, time: Time) -> u64 {
        let now = self.reference.now;
        let deadline = self.reference.timeout().map_or(now, |(at, _)| at);
        match time {
            Time::Same => now,
            Time::Later(nanos) => now + nanos,
            Time::Earlier(nanos) => now.saturating_sub(nanos),
            Time::Deadline => deadline,
            Time::BeforeDeadline => deadline.saturating_sub(1),
            Time::AfterDeadline => deadline + 1,
        }
    }

    /// Resolves the connection or check-out that a call means. A call without a target is replaced by one that moves
    /// the pool on; nonsense comes from the other picks, and there is enough of it.
    fn resolve(&self, call: Call<Pick>) -> Call<Named> {
        let reference = &self.reference;
        let ids = |fits: &dyn Fn(&Connection) -> bool| reference.ids(fits);
        let state = |wanted: State| reference.ids(|c| c.state == wanted);
        let service_known = |known: bool| ids(&|c| c.state == State::Pending && c.service.is_some() == known);
        let connections = (1..=reference.created).collect();
        let check_outs = (1..=reference.started as u64).collect();
        let named = match call {
            Call::CheckOut(deadline, key) => Some(Call::CheckOut(deadline, key)),
            Call::Ready => Some(Call::Ready),
            Call::Clear { service, interrupts } => Some(Call::Clear { service, interrupts }),
            Call::Close => Some(Call::Close),
            Call::ResetAfterFork => Some(Call::ResetAfterFork),
            Call::Resize(resized) => Some(Call::Resize(resized)),
            Call::ReplaceConnections(over) => Some(Call::ReplaceConnections(over)),
            Call::EndAffinity(key) => Some(Call::EndAffinity(key)),
            Call::Resume => Some(Call::Resume),
            Call::RenewCredential => Some(Call::RenewCredential),
            Call::WarmUp(connections) => Some(Call::WarmUp(connections)),
            // One that is under way, where there is one.
            Call::CancelWarmUp(number) => {
                let under_way = reference.warm_ups.first().map_or(number, |warm_up| warm_up.number);
                Some(Call::CancelWarmUp(if number % 2 == 0 { number } else { under_way }))
            }
            Call::Timeout => Some(Call::Timeout),
            Call::Cancel(pick) => {
                let waiting = reference.waiters.iter().map(|waiter| waiter.check_out);
                let holders =
                    reference.connections.iter().filter(|c| c.state == State::InUse).filter_map(|c| c.check_out);
                let under_way = waiting.chain(holders).map(|check_out| check_out as u64).collect();
                name(pick, under_way, check_outs).map(Call::Cancel)
            }
            Call::CheckIn(user, pick, condition) => name(pick, state(State::InUse), connections).map(|it| {
                let holder = reference.holder(it).map(|check_out| check_out as u64);
                let user = name(user, holder.into_iter().collect(), check_outs).unwrap_or(Named::NeverIssued);
                Call::CheckIn(user, it, condition)
            }),
            Call::Hello(pick, service) => {
                name(pick, service_known(false), connections).map(|it| Call::Hello(it, service))
            }
            Call::Established(pick) => {
                name(pick, service_known(reference.options.load_balanced), connections).map(Call::Established)
            }
            Call::EstablishFailed(pick, reaction, failure) => {
                name(pick, state(State::Pending), connections).map(|it| Call::EstablishFailed(it, reaction, failure))
            }
            Call::Checked(pick, alive) => {
                name(pick, state(State::Checking), connections).map(|it| Call::Checked(it, alive))
            }
            Call::Refreshed(pick) => name(pick, state(State::Refreshing), connections).map(Call::Refreshed),
            Call::RefreshFailed(pick) => name(pick, state(State::Refreshing), connections).map(Call::RefreshFailed),
            Call::PeerClosed(pick) => {
                name(pick, ids(&|c| c.state != State::Pending), connections).map(Call::PeerClosed)
            }
        };
        named.unwrap_or_else(|| self.moving_on())
    }

    fn moving_on(&self) -> Call<Named> {
        let first = |state| self.reference.connections.iter().find(|c| c.state == state);
        match (self.reference.state, first(State::Checking), first(State::Pending)) {
            (PoolState::Paused, ..) => Call::Ready,
            (PoolState::Closed, ..) => Call::Timeout,
            (_, Some(checking), _) => Call::Checked(Named::Own(checking.id), true),
            (_, _, Some(pending)) if pending.service.is_some() == self.reference.options.load_balanced => {
                Call::Established(Named::Own(pending.id))
            }
            (_, _, Some(pending)) => Call::Hello(Named::Own(pending.id), 0),
            _ => Call::CheckOut(None, None),
        }
    }
}

/// Resolves a pick; none if nothing fits.
fn name(pick: Pick, fitting: Vec<u64>, all: Vec<u64>) -> Option<Named> {
    let (index, candidates) = match pick {
        Pick::Fitting(index) => (index, fitting),
        Pick::Any(index) => (index, all),
        Pick::NeverIssued => return Some(Named::NeverIssued),
        Pick::Foreign => return Some(Named::Foreign),
    };
    candidates.get(index % candidates.len().max(1)).copied().map(Named::Own)
}
