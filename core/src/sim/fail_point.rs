//! The fail point `failCommand` of a MongoDB server: which commands fail, how, and how often.
//!
//! The virtual server of the simulation and the test server use this one model, so that a result in virtual time means
//! the same on sockets. A document is read as MongoDB's `configureFailPoint` command reads it; a field that this model
//! does not know is an error, so that no test passes because its fault was not injected.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// The command that sets the fail point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigureFailPoint {
    /// Only `failCommand` is known.
    pub configure_fail_point: FailPointName,
    /// When it is on.
    pub mode: Mode,
    /// Its effect.
    #[serde(default)]
    pub data: FailCommand,
}

/// The fail points that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailPointName {
    /// Commands fail.
    FailCommand,
}

/// When a fail point is on. Only commands that it would affect count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Never.
    #[default]
    Off,
    /// Always.
    AlwaysOn,
    /// For this many commands, then never again.
    Times(u32),
    /// Always, after this many commands.
    Skip(u32),
}

/// Which commands fail, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FailCommand {
    /// The names of the commands.
    pub fail_commands: Vec<String>,
    /// Only connections that gave this application name in their hello.
    pub app_name: Option<String>,
    /// Hang up instead of answering.
    pub close_connection: bool,
    /// Wait before going on.
    pub block_connection: bool,
    /// How long, in milliseconds.
    #[serde(rename = "blockTimeMS")]
    pub block_time_ms: u64,
    /// Answer with this error instead of carrying out the command.
    pub error_code: Option<i32>,
    /// Labels of that error. Without them, those that a server gives it on its own.
    pub error_labels: Option<Vec<String>>,
}

/// A fail point in its current state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailPoint {
    mode: Mode,
    data: FailCommand,
}

/// The effect of a fail point on one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// How long the server waits first.
    pub delay: Duration,
    /// The fate of the command after that.
    pub outcome: Outcome,
    /// Whether the fail point was on for the command.
    pub hit: bool,
}

/// The fate of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is carried out.
    Proceed,
    /// The server hangs up.
    CloseConnection,
    /// The server answers with an error.
    Error {
        /// The error's code.
        code: i32,
        /// The error's labels. Without them, those that a server gives it on its own.
        labels: Option<Vec<String>>,
    },
}

impl Effect {
    /// No effect.
    pub const NONE: Self = Self { delay: Duration::ZERO, outcome: Outcome::Proceed, hit: false };
}

impl FailPoint {
    /// Sets the fail point anew.
    pub fn configure(&mut self, command: ConfigureFailPoint) {
        let ConfigureFailPoint { configure_fail_point: FailPointName::FailCommand, mode, data } = command;
        *self = Self { mode, data };
    }

    /// A connection with the application name `app_name` sends `command`: the fail point's effect on it.
    pub fn hit(&mut self, command: &str, app_name: Option<&str>) -> Effect {
        let applies = self.names(command)
            && self.data.app_name.as_deref().is_none_or(|wanted| Some(wanted) == app_name)
            && self.mode.is_on();
        if !applies {
            return Effect::NONE;
        }
        let FailCommand { close_connection, block_connection, block_time_ms, error_code, .. } = self.data;
        let outcome = match error_code {
            _ if close_connection => Outcome::CloseConnection,
            Some(code) => Outcome::Error { code, labels: self.data.error_labels.clone() },
            None => Outcome::Proceed,
        };
        let delay = if block_connection { Duration::from_millis(block_time_ms) } else { Duration::ZERO };
        Effect { delay, outcome, hit: true }
    }

    /// Whether the fail point lists the command. The names of hello are one command to it (SRV-1), and it never affects
    /// the command that switches it off (SRV-3).
    fn names(&self, command: &str) -> bool {
        let is_hello = |name: &str| matches!(name, "hello" | "isMaster" | "ismaster");
        command != "configureFailPoint"
            && self.data.fail_commands.iter().any(|name| name == command || is_hello(name) && is_hello(command))
    }
}

impl Mode {
    /// Whether a fail point is on for one more command that it would affect. The call counts as that command.
    pub fn is_on(&mut self) -> bool {
        match self {
            Self::Off | Self::Times(0) => false,
            Self::AlwaysOn | Self::Skip(0) => true,
            Self::Times(left) => {
                *left -= 1;
                true
            }
            Self::Skip(left) => {
                *left -= 1;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail_point(json: &str) -> FailPoint {
        let mut fail_point = FailPoint::default();
        fail_point.configure(serde_json::from_str(json).unwrap());
        fail_point
    }

    fn hits(fail_point: &mut FailPoint, count: usize) -> Vec<bool> {
        (0..count).map(|_| fail_point.hit("find", None).outcome == Outcome::CloseConnection).collect()
    }

    #[test]
    fn modes_count_only_the_commands_they_would_hit() {
        let close = r#""data": {"failCommands": ["find"], "closeConnection": true}"#;
        for (mode, expected) in [
            (r#""off""#, [false, false, false]),
            (r#""alwaysOn""#, [true, true, true]),
            (r#"{"times": 2}"#, [true, true, false]),
            (r#"{"skip": 1}"#, [false, true, true]),
        ] {
            let mut fail_point =
                fail_point(&alloc::format!(r#"{{"configureFailPoint": "failCommand", "mode": {mode}, {close}}}"#));
            assert_eq!(fail_point.hit("insert", None).outcome, Outcome::Proceed);
            assert_eq!(hits(&mut fail_point, 3), expected, "{mode}");
        }
    }

    #[test]
    fn an_application_name_restricts_it() {
        let mut fail_point = fail_point(
            r#"{"configureFailPoint": "failCommand", "mode": "alwaysOn",
                "data": {"failCommands": ["isMaster"], "appName": "mine", "errorCode": 91, "errorLabels": ["L"],
                         "blockConnection": true, "blockTimeMS": 500}}"#,
        );

        assert_eq!(fail_point.hit("hello", Some("other")).outcome, Outcome::Proceed);
        assert_eq!(fail_point.hit("hello", None).outcome, Outcome::Proceed);
        let effect = fail_point.hit("hello", Some("mine"));
        assert_eq!(effect.delay, Duration::from_millis(500));
        assert_eq!(effect.outcome, Outcome::Error { code: 91, labels: Some(alloc::vec!["L".into()]) });
    }

    #[test]
    fn what_the_model_does_not_know_is_refused() {
        for json in [
            r#"{"configureFailPoint": "hangAnalyze", "mode": "off"}"#,
            r#"{"configureFailPoint": "failCommand", "mode": "sometimes"}"#,
            r#"{"configureFailPoint": "failCommand", "mode": "off", "data": {"writeConcernErr": 1}}"#,
        ] {
            assert!(serde_json::from_str::<ConfigureFailPoint>(json).is_err(), "{json}");
        }
    }
}
