//! What runs at the hub: users see their own operations by `currentOp` and end them by `killOp`.
//!
//! The hub answers both itself. Several of its users may be one user upstream, whose operations a server cannot tell apart; and what waits
//! for its turn is at no server yet. So the numbers of operations are the hub's own.

use core::time::Duration;
use std::sync::Arc;

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use cmap_core::time::Instant;
use cmap_core::wire::integer;

use super::names;
use super::reading::{array, field, values};
use super::refusal::Refusal;
use super::request::Request;
use super::targets::Target;
use crate::users::User;

/// The hub's number of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// A command that waits or runs.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its number.
    pub id: OperationId,
    /// Whose it is: a user's name, or an address where nobody logs in.
    pub user: Arc<str>,
    /// The number of its connection.
    pub connection: i64,
    /// The command.
    pub request: Arc<Request>,
    /// How long it has been there.
    pub took: Duration,
    /// Its server; `None` while it waits for its turn or for a server.
    pub server: Option<String>,
}

/// Whose operations are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'u> {
    /// Those of all users.
    Everybodys,
    /// Those of one user.
    Of(&'u str),
}

/// All operations of the hub.
pub trait Operations {
    /// Those that wait and run, the oldest first.
    fn list(&self, now: Instant, whose: Whose<'_>) -> Vec<Operation>;

    /// Ends an operation: its client gets [`Refusal::interrupted`]. Whether there was such a one.
    fn kill(&self, id: OperationId, whose: Whose<'_>) -> bool;
}

impl Whose<'_> {
    /// Whether an operation of this user is meant.
    pub fn includes(self, user: &str) -> bool {
        match self {
            Self::Everybodys => true,
            Self::Of(name) => name == user,
        }
    }
}

/// The database of both commands.
const DATABASE: &str = "admin";

/// Fields that any command may have besides its own.
const OF_ANY_COMMAND: [&str; 10] = [
    "$clusterTime",
    "$db",
    "$readPreference",
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "comment",
    "lsid",
    "maxTimeMS",
    "readConcern",
];

/// Answers `currentOp`, `killOp` and the stage `$currentOp`; `None` if it is something else, or the server's to answer.
pub(super) fn answer(
    request: &Request,
    user: &User,
    now: Instant,
    operations: &dyn Operations,
) -> Option<Result<RawDocumentBuf, Refusal>> {
    match request.name.as_str() {
        "currentOp" => Some(current(request, user, now, operations)),
        "killOp" => Some(kill(request, user, operations)),
        // A rule that names the stage in full shows what the server knows.
        "aggregate" if !user.rules.names(&target("$currentOp")) => {
            aggregate(request, user, now, operations).transpose()
        }
        _ => None,
    }
}

fn current(
    request: &Request,
    user: &User,
    now: Instant,
    operations: &dyn Operations,
) -> Result<RawDocumentBuf, Refusal> {
    check(request, user, "currentOp")?;
    let mut fields = request.fields().skip(1).map(|(key, _)| key.as_str());
    let filter = fields.find(|key| !OF_ANY_COMMAND.contains(key) && !matches!(*key, "$all" | "$ownOps"));
    if let Some(filter) = filter {
        let filter = names::shown(filter);
        let message = format!("currentOp of a hub knows $ownOps and no filter like {filter}; filter its reply");
        return Err(Refusal::new(72, "InvalidOptions", message));
    }
    let only_own = request.body().get_bool("$ownOps").unwrap_or_default();
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("inprog"), listed(&operations.list(now, whose(user, "currentOp", only_own))));
    Ok(reply)
}

/// `None` if the first stage is another one.
fn aggregate(
    request: &Request,
    user: &User,
    now: Instant,
    operations: &dyn Operations,
) -> Result<Option<RawDocumentBuf>, Refusal> {
    let mut stages = array(request.body(), "pipeline")?.into_iter().flat_map(values);
    let Some(RawBsonRef::Document(first)) = stages.next().transpose()? else { return Ok(None) };
    let Some(options) = field(first, "$currentOp")? else { return Ok(None) };
    check(request, user, "currentOp")?;
    let is_empty = |stage: RawBsonRef<'_>| {
        stage.as_document().is_some_and(|stage| stage.get_document("$match").is_ok_and(RawDocument::is_empty))
    };
    let rest = stages.collect::<Result<Vec<_>, _>>()?;
    if !rest.into_iter().all(is_empty) {
        let message = "$currentOp of a hub shows the user's own operations, and has no further stages; filter its reply. A \
                       rule that names $currentOp in full lets it pass to the server";
        return Err(Refusal::new(72, "InvalidOptions", message));
    }
    let all = options.as_document().is_some_and(|options| options.get_bool("allUsers").unwrap_or_default());
    let mut cursor = RawDocumentBuf::new();
    cursor.append(cstr!("id"), 0_i64);
    cursor.append(cstr!("ns"), "admin.$cmd.aggregate");
    cursor.append(cstr!("firstBatch"), listed(&operations.list(now, whose(user, "currentOp", !all))));
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursor"), cursor);
    Ok(Some(reply))
}

fn kill(request: &Request, user: &User, operations: &dyn Operations) -> Result<RawDocumentBuf, Refusal> {
    check(request, user, "killOp")?;
    let id = request.body().get("op").ok().flatten().and_then(integer).and_then(|id| u64::try_from(id).ok());
    let Some(id) = id else {
        let message = "killOp wants the number of an operation, `op`, as this hub's currentOp shows it";
        return Err(Refusal::new(9, "FailedToParse", message));
    };
    // Whether it is another user's is not said.
    if !operations.kill(OperationId(id), whose(user, "killOp", false)) {
        return Err(Refusal::unauthorized(format!("there is no operation {id} of this user; see currentOp")));
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("info"), "attempting to kill op");
    Ok(reply)
}

fn check(request: &Request, user: &User, action: &str) -> Result<(), Refusal> {
    if request.database != DATABASE {
        return Err(Refusal::unauthorized(format!("{action} may only be run against the admin database.")));
    }
    user.rules.check(&[target(action)]).map_err(Refusal::forbidden)
}

/// A user whose rules name the command in full is an operator. Where nobody logs in, everybody is the same user.
fn whose<'u>(user: &'u User, action: &str, only_own: bool) -> Whose<'u> {
    let is_anonymous = user.name.is_empty();
    if is_anonymous || !only_own && user.rules.names(&target(action)) {
        Whose::Everybodys
    } else {
        Whose::Of(&user.name)
    }
}

fn target(action: &str) -> Target {
    Target { database: DATABASE.into(), collection: String::new(), action: action.into() }
}

fn listed(operations: &[Operation]) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    operations.iter().for_each(|operation| list.push(shown(operation)));
    list
}

/// An operation as a server shows one, without what the command contains.
fn shown(operation: &Operation) -> RawDocumentBuf {
    let Operation { id, user, connection, request, took, server } = operation;
    let collection = request.collection().map(names::cut);
    let mut command = RawDocumentBuf::new();
    if let Ok(name) = <&bson::raw::CStr>::try_from(request.name.as_str()) {
        command.append(name, collection.unwrap_or_default());
    }
    command.append(cstr!("$db"), request.database.as_str());
    let mut effective = RawDocumentBuf::new();
    effective.append(cstr!("user"), &**user);
    effective.append(cstr!("db"), DATABASE);
    let mut users = RawArrayBuf::new();
    users.push(effective);
    let whole = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
    let mut shown = RawDocumentBuf::new();
    shown.append(cstr!("type"), "op");
    if let Some(server) = server {
        shown.append(cstr!("host"), server.as_str());
    }
    shown.append(cstr!("desc"), format!("conn{connection}"));
    shown.append(cstr!("connectionId"), *connection);
    shown.append(cstr!("effectiveUsers"), users);
    shown.append(cstr!("active"), server.is_some());
    shown.append(cstr!("opid"), whole(id.0.into()));
    shown.append(cstr!("secs_running"), whole(took.as_secs().into()));
    shown.append(cstr!("microsecs_running"), whole(took.as_micros()));
    shown.append(cstr!("op"), "command");
    shown.append(cstr!("ns"), format!("{}.{}", request.database, collection.unwrap_or("$cmd")));
    shown.append(cstr!("command"), command);
    shown
}
