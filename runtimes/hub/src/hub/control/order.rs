//! What an operator asks for, in one line.

use core::str::FromStr;
use core::time::Duration;

use thiserror::Error;

use super::super::inherited::HAND_OVER;

/// How long a pause waits for what runs, unless the operator says it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest that it may wait.
const MOST_PATIENCE: u64 = 3_600;

/// An order to a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Say what the hub is at.
    Status,
    /// Say what its users are at.
    Users,
    /// Give no turns, and say when nothing runs; wait for that so long at most.
    Pause(Duration),
    /// Give turns again.
    Resume,
    /// End as at SIGTERM.
    Drain,
    /// Start a new process, and hand the listeners over to it.
    Upgrade,
    /// Hand the listeners over to the process that asks.
    HandOver,
    /// End connections.
    Kick(Whom),
    /// Read the configuration again.
    Reload,
    /// Log by this filter from now on.
    LogLevel(String),
}

/// Whose connections to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    User(String),
    Address(String),
    Connection(i64),
}

/// A line is no order.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{line:?} is no order; write status, users, pause [SECONDS], resume, drain, upgrade, kick user NAME, kick address ADDRESS, kick connection \
     NUMBER, reload, or log-level FILTER"
)]
pub(super) struct NoOrder {
    line: String,
}

impl FromStr for Order {
    type Err = NoOrder;

    fn from_str(line: &str) -> Result<Self, NoOrder> {
        let no_order = || NoOrder { line: line.trim().into() };
        let (word, rest) = split(line);
        match (word, rest) {
            ("status", "") => Ok(Self::Status),
            ("users", "") => Ok(Self::Users),
            ("pause", "") => Ok(Self::Pause(PATIENCE)),
            ("pause", seconds) => {
                let seconds = seconds.parse().ok().filter(|seconds| *seconds <= MOST_PATIENCE);
                seconds.map(Duration::from_secs).map(Self::Pause).ok_or_else(no_order)
            }
            ("resume", "") => Ok(Self::Resume),
            ("drain", "") => Ok(Self::Drain),
            ("upgrade", "") => Ok(Self::Upgrade),
            (HAND_OVER, "") => Ok(Self::HandOver),
            ("kick", whom) => whom_of(whom).map(Self::Kick).ok_or_else(no_order),
            ("reload", "") => Ok(Self::Reload),
            ("log-level", filter) if !filter.is_empty() => Ok(Self::LogLevel(filter.into())),
            _ => Err(no_order()),
        }
    }
}

/// A name may have spaces in it.
fn whom_of(text: &str) -> Option<Whom> {
    match split(text) {
        (_, "") => None,
        ("user", name) => Some(Whom::User(name.into())),
        ("address", address) => Some(Whom::Address(address.into())),
        ("connection", number) => number.parse().ok().map(Whom::Connection),
        _ => None,
    }
}

/// The first word, and the rest.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_order_with_what_belongs_to_it() {
        for (line, order) in [
            ("status\n", Order::Status),
            ("pause", Order::Pause(PATIENCE)),
            ("pause 60", Order::Pause(Duration::from_secs(60))),
            ("kick user Anna B.", Order::Kick(Whom::User("Anna B.".into()))),
            ("kick  address  10.0.0.1 ", Order::Kick(Whom::Address("10.0.0.1".into()))),
            ("kick connection 17", Order::Kick(Whom::Connection(17))),
            ("log-level info,cmap::hub=debug", Order::LogLevel("info,cmap::hub=debug".into())),
        ] {
            assert_eq!(line.parse(), Ok(order), "{line}");
        }
    }

    #[test]
    fn what_is_no_order_is_told_what_there_is() {
        for line in
            ["", "stop", "status now", "pause 1e9", "pause 3601", "kick", "kick user", "kick connection x", "log-level"]
        {
            let error = line.parse::<Order>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{line:?} is no order; write status, ")), "{error}");
        }
    }
}
