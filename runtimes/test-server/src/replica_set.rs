//! The replica set whose only member is the server (SRV-8).
//!
//! It is the primary, except for a while after `replSetStepDown`.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, Timestamp};
use cmap_core::time::Instant;

use super::clock::date;
use super::document::document;
use super::failure::{Outcome, fail};
use super::request::Request;
use crate::store::CommandFailure;

/// One replica set, seen by its only member.
#[derive(Debug)]
pub(super) struct ReplicaSet {
    name: String,
    me: String,
    election_id: ObjectId,
    /// Until when it is a secondary.
    stepped_down_until: Option<Instant>,
}

impl ReplicaSet {
    pub(super) fn new(name: String, me: String) -> Self {
        // The first election; ids of elections grow.
        let election_id = ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]);
        Self { name, me, election_id, stepped_down_until: None }
    }

    pub(super) fn is_primary(&self) -> bool {
        self.stepped_down_until.is_none()
    }

    /// When it becomes the primary again.
    pub(super) fn next_election(&self) -> Option<Instant> {
        self.stepped_down_until
    }

    pub(super) fn step_up(&mut self) {
        self.stepped_down_until = None;
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The fields of a hello's reply.
    pub(super) fn describe(&self, reply: &mut RawDocumentBuf, time: Timestamp, unix: Duration) {
        let mut hosts = RawArrayBuf::new();
        hosts.push(self.me.as_str());
        reply.append(bson::cstr!("hosts"), hosts);
        reply.append(bson::cstr!("setName"), self.name.as_str());
        reply.append(bson::cstr!("setVersion"), 1);
        reply.append(bson::cstr!("secondary"), !self.is_primary());
        if self.is_primary() {
            reply.append(bson::cstr!("primary"), self.me.as_str());
        }
        reply.append(bson::cstr!("me"), self.me.as_str());
        reply.append(bson::cstr!("electionId"), self.election_id);
        let op_time = document! { "ts": time, "t": 1_i64 };
        let now = date(Duration::from_secs(unix.as_secs()));
        reply.append(
            bson::cstr!("lastWrite"),
            document! { "opTime": op_time.clone(), "lastWriteDate": now, "majorityOpTime": op_time, "majorityWriteDate": now },
        );
    }

    /// Why this member cannot take `request`, which is about data, now.
    pub(super) fn refusal(&self, request: &Request<'_>, writes: bool) -> Option<CommandFailure> {
        if self.is_primary() {
            return None;
        }
        if writes {
            return Some(fail(10107, "not primary"));
        }
        let preference = request.arguments.document("$readPreference").ok().flatten();
        match preference.and_then(|preference| preference.text("mode").ok().flatten()) {
            None | Some("primary") => Some(fail(13435, "not primary and secondaryOk=false")),
            Some(_) => None,
        }
    }

    /// `replSetStepDown`. No other member can become the primary, so it needs `force`.
    pub(super) fn step_down(&mut self, now: Instant, request: &Request<'_>) -> Outcome {
        let seconds = request.arguments.integer(request.name)?.and_then(|seconds| u64::try_from(seconds).ok());
        let seconds = seconds.filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or_else(|| fail(2, "stepdown period must be a positive integer"))?;
        if !self.is_primary() {
            return Err(fail(10107, "not primary so can't step down"));
        }
        if !request.arguments.flag("force") {
            return Err(fail(
                262,
                "No electable secondaries caught up; please use the replSetStepDown command with the argument {force: true}",
            ));
        }
        self.stepped_down_until = Some(now + Duration::from_secs(seconds));
        Ok(RawDocumentBuf::new())
    }

    /// `replSetFreeze`. Only ending it has an effect: an election.
    pub(super) fn freeze(&mut self, request: &Request<'_>) -> Outcome {
        if self.is_primary() {
            return Err(fail(95, "cannot freeze node when primary or running for election. state: Primary"));
        }
        if request.arguments.integer(request.name)? == Some(0) {
            self.step_up();
        }
        Ok(RawDocumentBuf::new())
    }

    /// `replSetGetStatus`.
    pub(super) fn status(&self, time: Timestamp, unix: Duration) -> RawDocumentBuf {
        let (state, state_name) = if self.is_primary() { (1, "PRIMARY") } else { (2, "SECONDARY") };
        let op_time = document! { "ts": time, "t": 1_i64 };
        let mut members = RawArrayBuf::new();
        members.push(document! {
            "_id": 0, "name": self.me.as_str(), "health": 1.0, "state": state, "stateStr": state_name,
            "uptime": 1, "optime": op_time.clone(), "configVersion": 1, "self": true,
        });
        document! {
            "set": self.name.as_str(), "date": date(unix), "myState": state, "term": 1_i64,
            "optimes": document! { "lastCommittedOpTime": op_time.clone(), "appliedOpTime": op_time.clone(), "durableOpTime": op_time },
            "members": members,
        }
    }

    /// `replSetGetConfig`.
    pub(super) fn config(&self) -> RawDocumentBuf {
        let mut members = RawArrayBuf::new();
        members.push(document! {
            "_id": 0, "host": self.me.as_str(), "arbiterOnly": false, "buildIndexes": true, "hidden": false,
            "priority": 1.0, "tags": document! {}, "secondaryDelaySecs": 0_i64, "votes": 1,
        });
        document! {
            "config": document! {
                "_id": self.name.as_str(), "version": 1, "term": 1_i64, "members": members,
                "protocolVersion": 1_i64, "settings": document! { "electionTimeoutMillis": 10_000 },
            },
        }
    }
}

/// The answer of a server without a replica set.
pub(super) fn no_replication() -> CommandFailure {
    fail(76, "not running with --replSet")
}
