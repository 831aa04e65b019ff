//! `configureFailPoint`, as drivers' test suites send it, and the effect of a fail point on one command.
//!
//! `failCommand` hits commands by their names, `maxTimeAlwaysTimeOut` those with a time limit, which `maxTimeNeverTimeOut` takes
//! away, `failGetMoreAfterCursorCheckout` getMore of an open cursor, which it closes, and `onPrimaryTransactionalWrite` writes
//! that may be sent twice. The last of them counts the documents of a write, but a command is committed as a whole here: it hits
//! all of them or none.

use bson::RawDocumentBuf;

use super::document::document;
use super::fail_command::{Effect, FailCommand, Mode, texts};
use super::failure::{Outcome, fail};
use super::identity::Identity;
use super::request::{Arguments, Request};
use crate::store::CommandFailure;

/// Fields of `failCommand` that are read here, or concern commands that a server sends to itself and threads that have names.
const BEYOND_THE_COMMAND: [&str; 4] = ["namespace", "writeConcernError", "failInternalCommands", "failLocalClients"];

/// The fail points of one server.
#[derive(Debug, Default)]
pub(super) struct FailPoints {
    max_time_always_time_out: Mode,
    max_time_never_time_out: Mode,
    fail_get_more: (Mode, GetMoreFault),
    on_transactional_write: (Mode, WriteFault),
    fail_command: FailCommand,
    /// Only commands on this collection.
    namespace: Option<String>,
    /// Added to the reply of a command that it hits and that is carried out.
    write_concern_error: Option<WriteConcernError>,
    configured: i64,
}

/// The effect on a getMore whose cursor is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GetMoreFault {
    pub(super) error_code: i32,
    /// The connection ends instead of an answer.
    pub(super) closes_connection: bool,
}

/// The effect on a write that may be sent twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteFault {
    /// The connection ends, and the client does not learn the result of the write.
    pub(super) closes_connection: bool,
    /// The write is not carried out, but fails with this code.
    pub(super) error_code: Option<i32>,
}

/// A failure to satisfy a write concern, which does not fail the command.
#[derive(Debug)]
pub(super) struct WriteConcernError {
    pub(super) code: i32,
    pub(super) document: RawDocumentBuf,
    /// Labels of the reply. Without them, those that a server gives it on its own.
    pub(super) labels: Option<Vec<String>>,
}

impl FailPoints {
    /// `configureFailPoint`.
    pub(super) fn configure(&mut self, request: &Request<'_>) -> Outcome {
        let arguments = request.arguments;
        let (mode, data) = (Mode::read(arguments)?, arguments.document("data")?);
        match arguments.text("configureFailPoint")? {
            Some("failCommand") => self.configure_fail_command(mode, data)?,
            Some("maxTimeAlwaysTimeOut") => self.max_time_always_time_out = mode,
            Some("maxTimeNeverTimeOut") => self.max_time_never_time_out = mode,
            Some("failGetMoreAfterCursorCheckout") => self.fail_get_more = (mode, get_more_fault(mode, data)?),
            Some("onPrimaryTransactionalWrite") => self.on_transactional_write = (mode, write_fault(data)?),
            name => return Err(fail(167, format!("'{}' is not a fail point here", name.unwrap_or_default()))),
        }
        self.configured += 1;
        Ok(document! { "count": self.configured - 1 })
    }

    fn configure_fail_command(&mut self, mode: Mode, data: Option<Arguments<'_>>) -> Result<(), CommandFailure> {
        let (namespace, write_concern_error) = match data {
            Some(data) => (data.text("namespace")?, write_concern_error(data)?),
            None => (None, None),
        };
        self.fail_command = FailCommand::new(mode, data, &BEYOND_THE_COMMAND)?;
        self.namespace = namespace.map(String::from);
        self.write_concern_error = write_concern_error;
        Ok(())
    }

    /// The effect on `request` of the client `identity`; the call counts as one hit.
    pub(super) fn hit(&mut self, identity: &Identity, request: &Request<'_>) -> Effect {
        let elsewhere = self.namespace.as_ref().is_some_and(|wanted| {
            let field = if request.name == "getMore" { "collection" } else { request.name };
            let collection = request.arguments.text(field).ok().flatten().unwrap_or_default();
            wanted.split_once('.') != Some((request.database, collection))
        });
        match elsewhere {
            true => Effect::default(),
            false => self.fail_command.hit(request.name, app_name(identity, request)),
        }
    }

    /// Whether the time limit of `request` counts as exceeded. `goes_on` says that it goes on with a cursor that has one.
    pub(super) fn times_out(&mut self, request: &Request<'_>, goes_on: bool) -> bool {
        let has_limit = request.arguments.integer("maxTimeMS").is_ok_and(|limit| limit.is_some_and(|limit| limit > 0));
        (has_limit || goes_on) && self.max_time_always_time_out.is_on()
    }

    /// Whether commands may take longer than their time limits.
    pub(super) fn never_times_out(&mut self) -> bool {
        self.max_time_never_time_out.is_on()
    }

    /// The effect on a getMore whose cursor is open, if there is one; the call counts as one hit.
    pub(super) fn on_get_more(&mut self) -> Option<GetMoreFault> {
        let (mode, fault) = &mut self.fail_get_more;
        mode.is_on().then_some(*fault)
    }

    /// The effect on a write that may be sent twice, before it is carried out. Each of its documents counts as one hit, up to the first
    /// that is hit.
    pub(super) fn on_transactional_write(&mut self, request: &Request<'_>) -> WriteFault {
        let (mode, fault) = &mut self.on_transactional_write;
        let is_hit = (0..written_documents(request)).any(|_| mode.is_on());
        if is_hit { *fault } else { WriteFault::default() }
    }

    /// The fields to add to the reply of a command that was hit.
    pub(super) fn write_concern_error(&self) -> Option<&WriteConcernError> {
        self.write_concern_error.as_ref()
    }
}

/// How many documents or statements a write has.
fn written_documents(request: &Request<'_>) -> usize {
    let list = match request.name {
        "insert" => "documents",
        "update" => "updates",
        "delete" => "deletes",
        "bulkWrite" => "ops",
        _ => return 1,
    };
    request.arguments.array(list).ok().flatten().map_or(1, |list| list.into_iter().count().max(1))
}

/// The name of the client's application. A first hello that fails has set it already.
fn app_name<'a>(identity: &'a Identity, request: &Request<'a>) -> Option<&'a str> {
    if identity.is_known || !request.is_hello() {
        return identity.app_name.as_deref();
    }
    let metadata = request.arguments.document("client").ok().flatten()?;
    metadata.document("application").ok().flatten()?.text("name").ok().flatten()
}

/// By default, the connection ends.
fn write_fault(data: Option<Arguments<'_>>) -> Result<WriteFault, CommandFailure> {
    let Some(data) = data else { return Ok(WriteFault { closes_connection: true, error_code: None }) };
    let code = data.integer("failBeforeCommitExceptionCode")?.map(i32::try_from).transpose();
    Ok(WriteFault {
        closes_connection: data.get("closeConnection").is_none() || data.flag("closeConnection"),
        error_code: code.map_err(|_| fail(2, "failBeforeCommitExceptionCode is not a 32-bit number"))?,
    })
}

/// How getMore is to fail.
fn get_more_fault(mode: Mode, data: Option<Arguments<'_>>) -> Result<GetMoreFault, CommandFailure> {
    let closes_connection = data.is_some_and(|data| data.flag("closeConnection"));
    let code = data.map(|data| data.integer("errorCode")).transpose()?.flatten();
    let error_code = match code.and_then(|code| i32::try_from(code).ok()) {
        Some(code) => code,
        None if mode == Mode::Off || closes_connection => 0,
        None => return Err(fail(2, "failGetMoreAfterCursorCheckout needs an errorCode or closeConnection")),
    };
    Ok(GetMoreFault { error_code, closes_connection })
}

fn write_concern_error(data: Arguments<'_>) -> Result<Option<WriteConcernError>, CommandFailure> {
    let Some(error) = data.document("writeConcernError")? else { return Ok(None) };
    let code = error.integer("code")?.and_then(|code| i32::try_from(code).ok()).unwrap_or_default();
    Ok(Some(WriteConcernError { code, document: error.0.to_owned(), labels: texts(data, "errorLabels")? }))
}
