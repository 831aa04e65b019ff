//! Write concerns: how many members of a replica set have to have a write before its reply is sent.

use std::time::Duration;

use bson::{RawBsonRef, RawDocumentBuf};
use cmap_core::time::Instant;
use cmap_core::wire::integer;

use super::document::document;
use super::failure::fail;
use super::replica_set::ReplicaSet;
use super::replica_set::view::{Position, View};
use super::request::Request;
use crate::store::{CommandFailure, code, code_name};

/// What a write waits for before it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// Its entry in the log.
    position: Position,
    quorum: Quorum,
    /// The election by which the member became the primary that has written it.
    term: i64,
    pub(crate) limit: Option<Limit>,
    /// The write concern, as an error shows it.
    concern: RawDocumentBuf,
}

/// The members that have to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quorum {
    Majority,
    Count(usize),
}

/// The end of the wait, and the code of the error that it is: a limit of the write concern, or of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) at: Instant,
    code: i32,
}

/// How far a write has got.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Progress {
    /// Not all members that have to have it do.
    Pending,
    Reached,
    /// The wait is over: the `writeConcernError`.
    Failed(i32, RawDocumentBuf),
}

/// Refuses a write that waits for other members where there are none.
pub(super) fn check_alone(request: &Request<'_>) -> Result<(), CommandFailure> {
    match acknowledging(request)?.and_then(integer) {
        Some(members) if members > 1 => Err(fail(2, "cannot use 'w' > 1 when a host is not replicated")),
        Some(_) | None => Ok(()),
    }
}

/// The `writeConcernError` of a write that was carried out, and that the set can never satisfy.
pub(super) fn error(request: &Request<'_>, view: &View) -> Result<Option<RawDocumentBuf>, CommandFailure> {
    error_among(request, view.config.data_bearing().count())
}

/// The write concern error of a mongos, whose shards have three members each.
pub(super) fn error_at_shards(request: &Request<'_>) -> Result<Option<RawDocumentBuf>, CommandFailure> {
    error_among(request, 3)
}

fn error_among(request: &Request<'_>, members: usize) -> Result<Option<RawDocumentBuf>, CommandFailure> {
    let Some(wanted) = acknowledging(request)? else { return Ok(None) };
    let members = i64::try_from(members).unwrap_or(i64::MAX);
    let (code, message) = match (wanted.as_str(), integer(wanted)) {
        (Some("majority"), _) => return Ok(None),
        (None, Some(count)) if count <= members => return Ok(None),
        (Some(mode), _) => {
            let message = format!("No write concern mode named '{mode}' found in replica set configuration");
            (code::UNKNOWN_REPL_WRITE_CONCERN, message)
        }
        (None, _) => (code::UNSATISFIABLE_WRITE_CONCERN, String::from("Not enough data-bearing nodes")),
    };
    Ok(Some(error_document(code, message, &concern(request)?, false)))
}

impl Goal {
    /// What a write that `set` has carried out waits for.
    pub(super) fn of(request: &Request<'_>, set: &ReplicaSet, now: Instant) -> Result<Self, CommandFailure> {
        let view = set.view();
        let quorum = match acknowledging(request)? {
            None if view.config.defaults_to_majority() => Quorum::Majority,
            None => Quorum::Count(1),
            Some(wanted) => match integer(wanted) {
                Some(count) => Quorum::Count(usize::try_from(count).unwrap_or_default()),
                None => Quorum::Majority,
            },
        };
        let concern = concern(request)?;
        let positive =
            |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0);
        let limit = |limit: Option<i64>, code| {
            positive(limit).map(|limit| Limit { at: now + Duration::from_millis(limit), code })
        };
        let concerned = limit(super::request::Arguments(&concern).integer("wtimeout")?, code::WRITE_CONCERN_FAILED);
        let whole = limit(request.arguments.integer("maxTimeMS")?, code::MAX_TIME_MS_EXPIRED);
        let limit = concerned.into_iter().chain(whole).min_by_key(|limit| limit.at);
        Ok(Self { position: set.position(), quorum, term: set.term(), limit, concern })
    }

    /// Whether the member is no longer the primary that it was, so that another election may take the write back.
    pub(super) fn is_interrupted(&self, set: &ReplicaSet) -> bool {
        set.term() != self.term || !set.is_primary()
    }

    /// How far the write has got by now.
    pub(super) fn progress(&self, set: &ReplicaSet, now: Instant) -> Progress {
        let view = set.view();
        let reached = match self.quorum {
            Quorum::Majority => view.committed(),
            Quorum::Count(count) => view.reached_by(count),
        };
        let failed = |code, message: &str| {
            let is_timeout = code == code::WRITE_CONCERN_FAILED;
            Progress::Failed(code, error_document(code, message.to_owned(), &self.concern, is_timeout))
        };
        if self.is_interrupted(set) {
            return failed(code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, "operation was interrupted");
        }
        match self.limit {
            _ if reached >= self.position => Progress::Reached,
            Some(limit) if limit.at <= now && limit.code == code::MAX_TIME_MS_EXPIRED => {
                failed(limit.code, "operation exceeded time limit")
            }
            Some(limit) if limit.at <= now => failed(limit.code, "waiting for replication timed out"),
            Some(_) | None => Progress::Pending,
        }
    }
}

fn error_document(code: i32, message: String, concern: &RawDocumentBuf, is_timeout: bool) -> RawDocumentBuf {
    let mut info = RawDocumentBuf::new();
    if is_timeout {
        info.append(bson::cstr!("wtimeout"), true);
    }
    info.append(bson::cstr!("writeConcern"), concern);
    document! { "code": code, "codeName": code_name(code), "errmsg": message, "errInfo": info }
}

/// The write concern as the client has sent it.
fn concern(request: &Request<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    Ok(request.arguments.document("writeConcern")?.map(|concern| concern.0.to_owned()).unwrap_or_default())
}

/// The members that have to acknowledge the write.
fn acknowledging<'a>(request: &Request<'a>) -> Result<Option<RawBsonRef<'a>>, CommandFailure> {
    Ok(request.arguments.document("writeConcern")?.and_then(|concern| concern.get("w")))
}
