//! A machine with a twin that nobody observes. The twin has the same calls, but produces no events; so it takes the fast path that
//! production takes where nobody listens, and that an observed machine never takes. Both have to do the same.

use cmap_core::pool::{Action, Counts, Handle, IdentityId, Output as PoolOutput};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, Input, Output, Topology};

use super::machine::Machine;
use super::step::{ClientCase, Twin};

/// A machine, and perhaps its twin.
pub(super) struct Twins {
    machine: Topology<()>,
    unobserved: Option<Unobserved>,
}

struct Unobserved {
    machine: Topology<()>,
    /// What both have done since the last call, which has not been compared yet.
    pending: Option<(Done, Done)>,
    difference: Option<String>,
}

/// What a call has led to, without events. A delivery comes last, whether it was in the answer or among the outputs.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    answer: Answer<()>,
    outputs: Vec<Output<()>>,
    delivery: Option<Output<()>>,
}

impl Twins {
    pub(super) fn of(case: &ClientCase, machine: Topology<()>, twin: Topology<()>) -> Self {
        let is_timed = match case.twin {
            Twin::None => return Self { machine, unobserved: None },
            Twin::Plain => false,
            Twin::Timed => true,
        };
        let mut unobserved = Unobserved { machine: twin, pending: None, difference: None };
        unobserved.machine.observe(false);
        unobserved.machine.record_durations(is_timed);
        Self { machine, unobserved: Some(unobserved) }
    }
}

impl Machine for Twins {
    fn call(&mut self, now: Instant, input: Input) -> Answer<()> {
        let Some(twin) = &mut self.unobserved else { return self.machine.call(now, input, Some(())) };
        let answer = self.machine.call(now, input.clone(), Some(()));
        let own = Done::of(answer.clone(), &self.machine);
        let answer_of_twin = twin.machine.call(now, input, Some(()));
        twin.pending = Some((own, Done::of(answer_of_twin, &twin.machine)));
        answer
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        let output = self.machine.poll_output();
        if let Some(twin) = &mut self.unobserved {
            match &output {
                Some(output) => twin.pending.iter_mut().for_each(|(own, _)| own.note(output)),
                None => twin.compare(self.machine.next_timeout()),
            }
        }
        output
    }

    fn next_timeout(&self) -> Option<Instant> {
        Machine::next_timeout(&self.machine)
    }

    fn counts(&self) -> Counts {
        self.machine.counts()
    }

    fn contradiction(&self) -> Option<String> {
        let of_twin = || self.unobserved.as_ref().and_then(|twin| twin.machine.contradiction());
        self.machine.contradiction().or_else(of_twin)
    }

    fn identity_of(&self, connection: Handle) -> Option<IdentityId> {
        self.machine.identity_of(connection)
    }

    fn member_of(&self, pool: ServerId) -> ServerId {
        self.machine.member_of(pool)
    }

    fn outdated(&self) -> u32 {
        self.machine.outdated()
    }

    fn holds_back(&self, is_meant: impl Fn(ServerId) -> bool) -> bool {
        self.machine.holds_back(is_meant)
    }

    fn difference(&self) -> Option<&str> {
        self.unobserved.as_ref()?.difference.as_deref()
    }
}

impl Unobserved {
    fn compare(&mut self, next_timeout: Option<Instant>) {
        let Some((own, mut twins)) = self.pending.take() else { return };
        while let Some(output) = self.machine.poll_output() {
            twins.note(&output);
        }
        let at = Machine::next_timeout(&self.machine);
        if own != twins {
            self.difference = Some(format!("{own:?}\n  and unobserved\n  {twins:?}"));
        } else if next_timeout != at {
            self.difference = Some(format!("the next timeout at {next_timeout:?}, and unobserved at {at:?}"));
        }
    }
}

impl Done {
    fn of(answer: Answer<()>, machine: &Topology<()>) -> Self {
        let delivered = match answer {
            Answer::CheckOut(_, Some(ref delivery)) | Answer::CheckedIn(Some(ref delivery)) => {
                Some((delivery.check_out, delivery.connection))
            }
            Answer::Done
            | Answer::CheckOut(..)
            | Answer::CheckedIn(None)
            | Answer::Cancellation(_)
            | Answer::Identity(_)
            | Answer::WarmUp(_)
            | Answer::WarmUpCancelled(_)
            | Answer::Misuse(..)
            | Answer::LimitsRefused(_)
            | _ => None,
        };
        let answer = match answer {
            Answer::CheckOut(check_out, _) => Answer::CheckOut(check_out, None),
            Answer::CheckedIn(_) => Answer::CheckedIn(None),
            Answer::Done
            | Answer::Cancellation(_)
            | Answer::Identity(_)
            | Answer::WarmUp(_)
            | Answer::WarmUpCancelled(_)
            | Answer::Misuse(..)
            | Answer::LimitsRefused(_)
            | _ => answer,
        };
        let delivery = delivered.and_then(|(check_out, connection)| {
            let output = PoolOutput::Action(Action::Deliver { check_out, connection, socket: () });
            Some(Output::Pool { server: machine.pool_of(connection)?, output })
        });
        Self { answer, outputs: Vec::new(), delivery }
    }

    fn note(&mut self, output: &Output<()>) {
        let is_event = match output {
            Output::Pool { output: PoolOutput::Event(_), .. }
            | Output::Selection(_)
            | Output::Topology(_)
            | Output::Server { .. } => true,
            Output::Pool { output: PoolOutput::Action(_), .. }
            | Output::Selected { .. }
            | Output::Reselecting { .. }
            | Output::SelectionFailed { .. }
            | Output::WarmedUp { .. }
            | Output::ResolveSrv { .. }
            | Output::Monitor { .. } => false,
        };
        let is_only_delivery = matches!(self.answer, Answer::CheckedIn(_))
            && self.delivery.is_none()
            && matches!(output, Output::Pool { output: PoolOutput::Action(Action::Deliver { .. }), .. });
        if is_only_delivery {
            // An observed check-in has events before it, and so a queue.
            self.delivery = Some(output.clone());
        } else if !is_event {
            self.outputs.push(output.clone());
        }
    }
}
