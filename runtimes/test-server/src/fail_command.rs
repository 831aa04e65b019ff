//! The fail point `failCommand`: which commands fail, how, and how often.
//!
//! Numbers may have any type. A field that the model does not know, or whose value has a wrong type, is refused, so that no
//! test passes because its fault was not injected.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument};
use cmap_core::wire::document::command_name;

use super::failure::fail;
use super::request::{Arguments, is_hello};
use crate::store::CommandFailure;

/// The fail point in its current state: off by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailCommand {
    mode: Mode,
    /// The names of the commands.
    commands: Vec<String>,
    /// Only connections that gave this application name in their hello.
    app_name: Option<String>,
    /// The effect on a command that it hits.
    effect: Effect,
}

/// The fields of the command that sets it.
const FIELDS: [&str; 3] = ["configureFailPoint", "mode", "data"];
/// The fields of its `data`.
const FIELDS_OF_DATA: [&str; 7] =
    ["failCommands", "appName", "closeConnection", "blockConnection", "blockTimeMS", "errorCode", "errorLabels"];

/// When a fail point is on. Only commands that it would affect count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
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

/// The effect of a fail point on one command. By default there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// How long the server waits first.
    pub delay: Duration,
    /// The fate of the command after that.
    pub fate: Fate,
    /// Whether the fail point was on for the command.
    pub hit: bool,
}

/// The fate of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out.
    #[default]
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

impl FailCommand {
    /// What `command`, a `configureFailPoint` without a database, sets.
    ///
    /// # Errors
    /// It sets another fail point, or depends on more than the name of a command and its client.
    pub fn read(command: &RawDocument) -> Result<Self, CommandFailure> {
        let arguments = Arguments(command);
        if command_name(command) != Some("configureFailPoint")
            || arguments.text("configureFailPoint")? != Some("failCommand")
        {
            return Err(fail(167, "the command does not configure the fail point failCommand"));
        }
        if let Some(unknown) = arguments.names().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(fail(2, format!("configureFailPoint has no field '{unknown}' here")));
        }
        Self::new(Mode::read(arguments)?, arguments.document("data")?, &[])
    }

    /// The fail point with this `mode` and `data`, in which the fields `elsewhere` are left to others.
    pub(super) fn new(mode: Mode, data: Option<Arguments<'_>>, elsewhere: &[&str]) -> Result<Self, CommandFailure> {
        let Some(data) = data else { return Ok(Self { mode, ..Self::default() }) };
        let is_read = |name: &str| FIELDS_OF_DATA.contains(&name) || elsewhere.contains(&name);
        if let Some(unknown) = data.names().find(|name| !is_read(name)) {
            return Err(fail(2, format!("the fail point failCommand has no field '{unknown}' here")));
        }
        let millis = u64::try_from(data.integer("blockTimeMS")?.unwrap_or_default());
        let millis = millis.map_err(|_| fail(2, "blockTimeMS is negative"))?;
        let code = data.integer("errorCode")?.map(i32::try_from).transpose();
        let code = code.map_err(|_| fail(2, "errorCode is not a 32-bit number"))?;
        let labels = texts(data, "errorLabels")?;
        let effect = Effect {
            delay: if flag(data, "blockConnection")? { Duration::from_millis(millis) } else { Duration::ZERO },
            fate: match code {
                _ if flag(data, "closeConnection")? => Fate::CloseConnection,
                Some(code) => Fate::Error { code, labels },
                None => Fate::Proceed,
            },
            hit: true,
        };
        let commands = texts(data, "failCommands")?.unwrap_or_default();
        Ok(Self { mode, commands, app_name: data.text("appName")?.map(String::from), effect })
    }

    /// A connection with the application name `app_name` sends `command`: the fail point's effect on it.
    pub fn hit(&mut self, command: &str, app_name: Option<&str>) -> Effect {
        let applies = self.names(command)
            && self.app_name.as_deref().is_none_or(|wanted| Some(wanted) == app_name)
            && self.mode.is_on();
        if applies { self.effect.clone() } else { Effect::default() }
    }

    /// Whether the fail point lists the command. The names of hello are one command to it (SRV-1), and it never affects
    /// the command that switches it off (SRV-3).
    fn names(&self, command: &str) -> bool {
        command != "configureFailPoint"
            && self.commands.iter().any(|name| name == command || is_hello(name) && is_hello(command))
    }
}

impl Mode {
    /// The field `mode` of the command `configureFailPoint`.
    pub(super) fn read(arguments: Arguments<'_>) -> Result<Self, CommandFailure> {
        let count = |value: i64| {
            u32::try_from(value).map_err(|_| fail(2, "the count of a fail point is not a number of times"))
        };
        match arguments.get("mode") {
            Some(RawBsonRef::String("off")) => Ok(Self::Off),
            Some(RawBsonRef::String("alwaysOn")) => Ok(Self::AlwaysOn),
            Some(RawBsonRef::Document(mode)) => {
                let mode = Arguments(mode);
                match (mode.integer("times")?, mode.integer("skip")?) {
                    (Some(times), _) => Ok(Self::Times(count(times)?)),
                    (None, Some(skip)) => Ok(Self::Skip(count(skip)?)),
                    (None, None) => Err(fail(2, "mode must have times or skip")),
                }
            }
            _ => Err(fail(2, "mode must be off, alwaysOn, or have times or skip")),
        }
    }

    /// Whether a fail point is on for one more command that it would affect. The call counts as that command.
    pub(super) fn is_on(&mut self) -> bool {
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

fn flag(data: Arguments<'_>, name: &str) -> Result<bool, CommandFailure> {
    match data.get(name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| fail(14, format!("'{name}' of a fail point is not a boolean"))),
    }
}

/// The texts of an array, if there is one.
pub(super) fn texts(data: Arguments<'_>, name: &str) -> Result<Option<Vec<String>>, CommandFailure> {
    let Some(array) = data.array(name)? else { return Ok(None) };
    let texts = array.into_iter().map(|item| item.ok()?.as_str().map(String::from)).collect::<Option<_>>();
    texts.map(Some).ok_or_else(|| fail(14, format!("'{name}' of a fail point has an item that is not a string")))
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    fn fail_command(mode: impl Into<bson::RawBson>, data: RawDocumentBuf) -> FailCommand {
        let command = rawdoc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        FailCommand::read(&command).unwrap()
    }

    #[test]
    fn modes_count_only_the_commands_they_would_hit() {
        for (mode, expected) in [
            (bson::RawBson::from("off"), [false, false, false]),
            ("alwaysOn".into(), [true, true, true]),
            (rawdoc! { "times": 2 }.into(), [true, true, false]),
            (rawdoc! { "skip": 1 }.into(), [false, true, true]),
        ] {
            let data = rawdoc! { "failCommands": ["find"], "closeConnection": true, "errorCode": 91 };
            let mut fail_command = fail_command(mode.clone(), data);

            assert_eq!(fail_command.hit("insert", None), Effect::default());
            let hits = [(); 3].map(|()| fail_command.hit("find", None).fate == Fate::CloseConnection);
            assert_eq!(hits, expected, "{mode:?}");
        }
    }

    #[test]
    fn an_application_name_restricts_it() {
        let data = rawdoc! {
            "failCommands": ["isMaster"], "appName": "mine", "errorCode": 91, "errorLabels": ["L"],
            "blockConnection": true, "blockTimeMS": 500,
        };
        let mut fail_command = fail_command("alwaysOn", data);

        assert_eq!(fail_command.hit("hello", Some("other")), Effect::default());
        assert_eq!(fail_command.hit("hello", None), Effect::default());
        let fate = Fate::Error { code: 91, labels: Some(vec!["L".into()]) };
        let expected = Effect { delay: Duration::from_millis(500), fate, hit: true };
        assert_eq!(fail_command.hit("hello", Some("mine")), expected);
    }

    #[test]
    fn what_the_model_does_not_know_is_refused() {
        for command in [
            rawdoc! { "configureFailPoint": "hangAnalyze", "mode": "off" },
            rawdoc! { "mode": "off", "configureFailPoint": "failCommand" },
            rawdoc! { "configureFailPoint": "failCommand" },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "sometimes" },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "writeConcernErr": 1 } },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "namespace": "db.one" } },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "closeConnection": 1 } },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "blockConnection": "yes" } },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "data": { "failCommands": [1] } },
            rawdoc! { "configureFailPoint": "failCommand", "mode": "off", "date": {} },
        ] {
            assert!(FailCommand::read(&command).is_err(), "{command:?}");
        }
    }
}
