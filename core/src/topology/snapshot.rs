//! The state of a running topology without its sockets, which a file can hold.

use alloc::sync::Arc;

use super::usage::Usage;
use super::{Output, Topology};

impl<C> Topology<C> {
    /// A copy without the sockets. Given the same calls it has the same outputs.
    pub fn snapshot(&self) -> Topology<()> {
        Topology {
            options: self.options.clone(),
            pool_options: self.pool_options.clone(),
            description: Arc::clone(&self.description),
            servers: self.servers.snapshot(),
            identities: self.identities.clone(),
            usage: Usage::default(),
            departed: self.departed,
            durations: self.durations.clone(),
            phase: self.phase,
            writer: self.writer,
            check_out_limit: self.check_out_limit,
            selections: self.selections.clone(),
            warm_ups: self.warm_ups.clone(),
            windows: self.windows.clone(),
            random: self.random.clone(),
            now: self.now,
            polling: self.polling.clone(),
            outputs: self.outputs.snapshot(),
            observed: self.observed,
            selection_detail: self.selection_detail,
        }
    }
}

impl<C> Output<C> {
    /// The output without its socket.
    pub fn snapshot(&self) -> Output<()> {
        match self {
            Self::Pool { server, output } => Output::Pool { server: *server, output: output.snapshot() },
            Self::Selected { selection, check_out } => {
                Output::Selected { selection: *selection, check_out: *check_out }
            }
            Self::Reselecting { check_out, selection } => {
                Output::Reselecting { check_out: *check_out, selection: *selection }
            }
            Self::SelectionFailed { selection, error } => {
                Output::SelectionFailed { selection: *selection, error: Arc::clone(error) }
            }
            Self::WarmedUp { warm_up, result } => Output::WarmedUp { warm_up: *warm_up, result: result.clone() },
            Self::ResolveSrv { name } => Output::ResolveSrv { name: name.clone() },
            Self::Selection(event) => Output::Selection(event.clone()),
            Self::Topology(event) => Output::Topology(event.clone()),
            Self::Server { server, event } => Output::Server { server: *server, event: event.clone() },
            Self::Monitor { server, call } => Output::Monitor { server: *server, call: call.clone() },
        }
    }
}
