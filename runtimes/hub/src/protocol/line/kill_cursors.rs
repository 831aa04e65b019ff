//! One `killCursors` of a client, at all servers that have its cursors: one after the other, with one reply.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::wire::integer;

use super::super::holdings::cursors_in;
use super::super::passing::readable_fields;
use super::super::queue::Class;
use super::super::request::{Forward, Request, Route};
use super::{Answer, Line};
use crate::users::User;

/// A `killCursors` that is under way.
#[derive(Debug)]
pub(super) struct Killing {
    /// The user's identity.
    upstream: Option<Arc<str>>,
    rest: Vec<(Arc<ServerAddress>, Vec<i64>)>,
    /// What the servers say: which were killed, and which they do not have.
    killed: Vec<i64>,
    not_found: Vec<i64>,
    alive: Vec<i64>,
    /// The first error.
    failure: Option<RawDocumentBuf>,
    /// The fields of the last reply that are none of ours: the client's view of time.
    others: RawDocumentBuf,
}

impl Line {
    /// Those of other connections are not found, whether or not they exist.
    pub(super) fn kill_cursors(&mut self, request: &Arc<Request>, user: &User) -> Answer {
        let mut by_server = BTreeMap::<_, Vec<i64>>::new();
        let mut not_found = Vec::new();
        for id in cursors_in(request.body()) {
            match self.holdings.cursor(id) {
                Some(cursor) => by_server.entry(Arc::clone(&cursor.server)).or_default().push(id),
                None => not_found.push(id),
            }
        }
        let rest = by_server.into_iter().collect();
        let (upstream, others) = (user.upstream.clone(), RawDocumentBuf::new());
        let (killed, alive) = (Vec::new(), Vec::new());
        let mut killing = Killing { upstream, rest, killed, not_found, alive, failure: None, others };
        match killing.next(request) {
            Some(forward) => {
                self.killing = Some(killing);
                Answer::Run(Box::new(forward))
            }
            None => Answer::Reply(killing.lists()),
        }
    }
}

impl Killing {
    /// The part for the next server.
    pub(super) fn next(&mut self, request: &Arc<Request>) -> Option<Forward> {
        let (server, cursors) = self.rest.pop()?;
        let mut body = RawDocumentBuf::new();
        for (key, value) in request.fields() {
            match key.as_str() {
                "$db" => {}
                "cursors" => body.append(key, array(&cursors)),
                _ => body.append(key, value),
            }
        }
        let (request, route, upstream) = (Arc::clone(request), Route::Server(server), self.upstream.clone());
        Some(Forward { request, route, class: Class::LetsGo, body: Some(body), upstream, session_ends: false })
    }

    /// A server has answered its part.
    pub(super) fn note_reply(&mut self, reply: &RawDocument, ok: bool) {
        if !ok {
            self.failure.get_or_insert_with(|| reply.to_owned());
            return;
        }
        self.others = RawDocumentBuf::new();
        for (key, value) in readable_fields(reply) {
            let list = match key.as_str() {
                "cursorsKilled" => &mut self.killed,
                "cursorsNotFound" => &mut self.not_found,
                "cursorsAlive" => &mut self.alive,
                "cursorsUnknown" => continue,
                _ => {
                    self.others.append(key, value);
                    continue;
                }
            };
            let ids = value.as_raw_bson_ref().as_array().into_iter().flatten().filter_map(Result::ok);
            list.extend(ids.filter_map(integer));
        }
    }

    /// The reply for all of them: the first error, if there was one.
    pub(super) fn reply(self) -> RawDocumentBuf {
        if let Some(failure) = self.failure {
            return failure;
        }
        let mut reply = self.lists();
        readable_fields(&self.others).for_each(|(key, value)| reply.append(key, value));
        reply
    }

    fn lists(&self) -> RawDocumentBuf {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("cursorsKilled"), array(&self.killed));
        reply.append(cstr!("cursorsNotFound"), array(&self.not_found));
        reply.append(cstr!("cursorsAlive"), array(&self.alive));
        reply.append(cstr!("cursorsUnknown"), array(&[]));
        reply
    }
}

fn array(ids: &[i64]) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    ids.iter().for_each(|id| array.push(*id));
    array
}
