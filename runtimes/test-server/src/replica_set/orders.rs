//! The commands that change the set. A member checks them and, in a deployment, hands them on as orders.

use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::time::Instant;

use super::config::SetConfig;
use super::{Company, MemberState, ReplicaSet};
use crate::MemberId;
use crate::failure::{Outcome, fail};
use crate::request::Request;
use crate::store::{CommandFailure, code};

/// What a client wants of the deployment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// The primary becomes a secondary, and is not elected for so long.
    StepDown(Duration),
    /// This member is not elected for so long; zero lets it be elected.
    Freeze(Duration),
    /// This member is elected.
    StepUp,
    /// The set has another configuration.
    Reconfigure(SetConfig),
    /// A member's process is killed.
    Kill(MemberId),
    /// A member's process is started, after it was killed.
    Restart(MemberId),
    /// A member carries out writes so much later than the primary.
    Lag(MemberId, Duration),
}

impl ReplicaSet {
    /// `replSetStepDown` (SRV-9). Without `force`, another member must be able to take over.
    pub(crate) fn step_down(&mut self, now: Instant, request: &Request<'_>) -> Outcome {
        let period = seconds(request)?.filter(|period| !period.is_zero());
        let period = period.ok_or_else(|| fail(2, "stepdown period must be a positive integer"))?;
        if !self.is_primary() {
            return Err(fail(code::NOT_WRITABLE_PRIMARY, "not primary so can't step down"));
        }
        if !request.arguments.flag("force") && !self.view.has_successor {
            return Err(fail(
                code::EXCEEDED_TIME_LIMIT,
                "No electable secondaries caught up; please use the replSetStepDown command with the argument {force: true}",
            ));
        }
        match &mut self.company {
            Company::Alone { stepped_down_until } => *stepped_down_until = Some(now + period),
            Company::Deployment => self.orders.push(Order::StepDown(period)),
        }
        self.view.primary = None;
        Ok(RawDocumentBuf::new())
    }

    /// `replSetFreeze`.
    pub(crate) fn freeze(&mut self, request: &Request<'_>) -> Outcome {
        if self.is_primary() {
            let message = "cannot freeze node when primary or running for election. state: Primary";
            return Err(fail(code::NOT_SECONDARY, message));
        }
        let period = seconds(request)?.unwrap_or_default();
        match self.company {
            Company::Deployment => self.orders.push(Order::Freeze(period)),
            Company::Alone { .. } if period.is_zero() => self.step_up(),
            // It comes back after its time as a secondary, frozen or not.
            Company::Alone { .. } => {}
        }
        Ok(RawDocumentBuf::new())
    }

    /// `replSetStepUp`.
    pub(crate) fn ask_for_election(&mut self) -> Outcome {
        match (self.state(), self.company) {
            (MemberState::Primary, _) => {}
            (MemberState::Secondary, Company::Alone { .. }) => self.step_up(),
            (MemberState::Secondary, Company::Deployment) => self.orders.push(Order::StepUp),
            (MemberState::Arbiter | MemberState::Down | MemberState::Removed, _) => {
                return Err(fail(code::COMMAND_NOT_SUPPORTED, "this member cannot be elected"));
            }
        }
        Ok(RawDocumentBuf::new())
    }

    /// `replSetReconfig`.
    pub(crate) fn reconfigure(&mut self, request: &Request<'_>) -> Outcome {
        self.check_deployment(request.name)?;
        if !self.is_primary() && !request.arguments.flag("force") {
            let message = "replSetReconfig should only be run on a writable PRIMARY";
            return Err(fail(code::NOT_WRITABLE_PRIMARY, message));
        }
        let config = request.arguments.document(request.name)?;
        let config = SetConfig::read(config.ok_or_else(|| fail(14, "replSetReconfig has to be a document"))?)?;
        let incompatible = |problem: &str| {
            Err(fail(
                code::NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
                format!("New and old configurations differ in more than they may: {problem}"),
            ))
        };
        let current = &self.view.config;
        if config.name != current.name {
            return incompatible("the set's name cannot change");
        }
        if config.version <= current.version {
            return incompatible("the version has to be greater than the current one");
        }
        let moves = |member: &&super::config::MemberConfig| {
            current
                .member(member.id)
                .is_some_and(|old| old.host != member.host || old.bears_data() != member.bears_data())
        };
        if config.members.iter().any(|member| moves(&member)) {
            return incompatible("a member keeps its host, and whether it is an arbiter");
        }
        if self.is_primary() && config.member(self.me).is_none_or(|me| me.priority() <= 0.0) {
            return incompatible("the primary has to be electable in the new configuration");
        }
        self.orders.push(Order::Reconfigure(config));
        Ok(RawDocumentBuf::new())
    }

    fn check_deployment(&self, command: &str) -> Result<(), CommandFailure> {
        match self.company {
            Company::Deployment => Ok(()),
            Company::Alone { .. } => {
                let message = format!("{command} of a set with one member is not supported by this test server");
                Err(fail(code::COMMAND_NOT_SUPPORTED, message))
            }
        }
    }
}

/// The seconds that a command has as its argument.
fn seconds(request: &Request<'_>) -> Result<Option<Duration>, CommandFailure> {
    let seconds = request.arguments.integer(request.name)?.map(u64::try_from);
    let seconds = seconds.transpose().map_err(|_| fail(2, format!("{} takes a number of seconds", request.name)))?;
    Ok(seconds.map(Duration::from_secs))
}
