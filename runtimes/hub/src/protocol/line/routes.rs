//! Where a user's command goes, if it may go anywhere.

use std::sync::Arc;

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use cmap_core::retry::ErrorLabel;
use cmap_core::time::Instant;
use cmap_core::topology::ServerSelector;

use super::super::common::lock;
use super::super::greeting::Begins;
use super::super::holdings::continued_cursor;
use super::super::operations;
use super::super::queue::Class;
use super::super::refusal::Refusal;
use super::super::request::{Forward, Part, Request, Route, SessionId, session_id};
use super::super::sessions::SessionFault;
use super::super::targets::targets;
use super::{Answer, Line, Surroundings};
use crate::users::User;

/// How many cursors a connection may have open.
const MAX_CURSORS: usize = 1_000;

/// How many transactions a connection may have open. Drivers have one.
const MAX_TRANSACTIONS: usize = 1_000;

impl Line {
    /// A command of `user`.
    pub(super) fn command(
        &mut self,
        now: Instant,
        request: &Arc<Request>,
        user: &User,
        around: &mut Surroundings<'_>,
    ) -> Result<Answer, Refusal> {
        let is_begun = match around.facts.begins {
            Begins::Everything => true,
            Begins::Unrepeatable => {
                self.late_until.is_some_and(|until| now < until) || !request.is_repeated_by_drivers()
            }
            // One that nobody waits for has no other way to go.
            Begins::Nothing => !request.acknowledged,
        };
        if !is_begun && self.is_idle() {
            return Err(Refusal::ending(request));
        }
        if let Some(answer) = operations::answer(request, user, now, around.operations) {
            return answer.map(Answer::Reply);
        }
        check_rules(request, user)?;
        if let Some(session) = request.session {
            lock(around.common).sessions.claim(now, session, &user.name, self.number).map_err(session_refusal)?;
        }
        self.route(request, user, around)
    }

    fn route(&mut self, request: &Arc<Request>, user: &User, around: &mut Surroundings<'_>) -> Result<Answer, Refusal> {
        let session_ends = request.session.is_some_and(|session| lock(around.common).sessions.is_ending(&session));
        let run = |route, class, body| {
            let (request, upstream) = (Arc::clone(request), user.upstream.clone());
            Ok(Answer::Run(Box::new(Forward { request, route, class, body, upstream, session_ends })))
        };
        match request.name.as_str() {
            "endSessions" | "killSessions" | "refreshSessions" => {
                let mut common = lock(around.common);
                let (body, own) = own_sessions(request, |id| !common.sessions.is_foreign(id, &user.name));
                if request.name != "refreshSessions" {
                    own.iter().for_each(|id| common.sessions.end(id, &user.name));
                }
                drop(common);
                if own.is_empty() {
                    return Ok(Answer::Reply(RawDocumentBuf::new()));
                }
                // What only lets a session live longer lets go of nothing.
                let class = if request.name == "refreshSessions" { Class::Ordinary } else { Class::LetsGo };
                return run(Route::Select(ServerSelector::Writable), class, Some(body));
            }
            "getMore" => {
                let id = continued_cursor(request).unwrap_or_default();
                let cursor = self.holdings.cursor(id).ok_or_else(|| Refusal::cursor_not_found(id))?;
                let class = match request.part {
                    Some(_) => Class::LetsGo,
                    None if cursor.awaits => Class::Awaits,
                    None => Class::Ordinary,
                };
                return run(Route::Server(Arc::clone(&cursor.server)), class, None);
            }
            "killCursors" => return Ok(self.kill_cursors(request, user)),
            name if self.holdings.cursors() >= MAX_CURSORS && OPENING.contains(&name) => {
                let message = format!("the connection has {MAX_CURSORS} cursors open; read or kill some of them");
                return Err(Refusal::new(146, "ExceededMemoryLimit", message));
            }
            _ => {}
        }
        if request.part == Some(Part::Starts) && self.holdings.transactions() >= MAX_TRANSACTIONS {
            let message = format!("the connection has {MAX_TRANSACTIONS} transactions open; end some of them");
            return Err(Refusal::new(146, "ExceededMemoryLimit", message));
        }
        let known = request.session.zip(request.number).and_then(|(id, number)| self.holdings.transaction(&id, number));
        let selector = request.selector();
        match (request.part, known.map(|transaction| &transaction.server)) {
            (Some(Part::Continues | Part::Ends), Some(Some(server))) => {
                run(Route::Server(Arc::clone(server)), Class::LetsGo, None)
            }
            (Some(Part::Continues), Some(None) | None) => {
                let number = request.number.unwrap_or_default();
                let message =
                    format!("the connection has no transaction with the number {number}; repeat it as a whole");
                let refusal = Refusal::new(251, "NoSuchTransaction", message);
                Err(refusal.with_label(ErrorLabel::TransientTransactionError))
            }
            (Some(Part::Ends), Some(None)) => run(Route::Select(ServerSelector::Writable), Class::LetsGo, None),
            // The number of a transaction that is not known here may be invented.
            (Some(Part::Starts), _) | (Some(Part::Ends), None) => {
                run(Route::Select(ServerSelector::Writable), Class::Ordinary, None)
            }
            (None, _) => run(Route::Select(selector), Class::Ordinary, None),
        }
    }
}

/// Commands that open cursors.
const OPENING: [&str; 5] = ["aggregate", "bulkWrite", "find", "listCollections", "listIndexes"];

fn check_rules(request: &Request, user: &User) -> Result<(), Refusal> {
    let targets = targets(request)?;
    user.rules.check(&targets).map_err(Refusal::forbidden)
}

/// The command with only those of its sessions that are the user's, and these sessions.
fn own_sessions(request: &Request, is_own: impl Fn(&SessionId) -> bool) -> (RawDocumentBuf, Vec<SessionId>) {
    let (mut body, mut own) = (RawDocumentBuf::new(), Vec::new());
    for (index, (key, value)) in request.fields().enumerate().filter(|(_, (key, _))| key.as_str() != "$db") {
        let RawBsonRef::Array(array) = value else {
            body.append(key, value);
            continue;
        };
        if index > 0 {
            body.append(key, value);
            continue;
        }
        let mut kept = RawArrayBuf::new();
        for session in array.into_iter().filter_map(Result::ok) {
            if let Some(id) = session_id(session).filter(&is_own) {
                own.push(id);
                kept.push(session);
            }
        }
        body.append(key, kept);
    }
    (body, own)
}

fn session_refusal(fault: SessionFault) -> Refusal {
    match fault {
        SessionFault::Foreign => Refusal::unauthorized("the session is another user's"),
        SessionFault::TooMany => {
            Refusal::new(261, "TooManyLogicalSessions", "the user has too many sessions at this hub; end some of them")
        }
    }
}
