//! The fail point of a test's server, as the command `configureFailPoint` sets it (FMT-6).

use bson::{RawDocument, RawDocumentBuf};
use cmap_test_server::fail_command::FailCommand;
use serde::Deserialize;
use serde_json::Value;

use crate::suites::extended_json;

/// The command that sets the fail point `failCommand`, or ends it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct FailPoint {
    command: RawDocumentBuf,
    sets: FailCommand,
}

impl FailPoint {
    /// The command, without its database.
    pub fn command(&self) -> &RawDocument {
        &self.command
    }

    /// What the command sets.
    pub fn sets(&self) -> &FailCommand {
        &self.sets
    }
}

impl TryFrom<Value> for FailPoint {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let command = RawDocumentBuf::try_from(extended_json::document(value)?).map_err(|error| error.to_string())?;
        let sets = FailCommand::read(&command).map_err(|failure| failure.message)?;
        Ok(Self { command, sets })
    }
}
