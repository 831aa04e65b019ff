//! The fields of a hello that describe the set and the member's place in it.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, Timestamp};

use super::ReplicaSet;
use super::config::{MemberConfig, MemberRole};
use super::view::MemberState;
use crate::clock::date;
use crate::document::document;

impl ReplicaSet {
    /// The fields of a hello's reply. `time` is the time of the last operation that this member has, and `unix` the time of day
    /// until which it has all.
    pub(crate) fn describe(&self, reply: &mut RawDocumentBuf, time: Timestamp, unix: Duration) {
        let state = self.state();
        let config = &self.view.config;
        let Some(me) = config.member(self.me) else {
            reply.append(bson::cstr!("secondary"), false);
            reply.append(bson::cstr!("isreplicaset"), true);
            reply.append(bson::cstr!("info"), "Does not have a valid replica set config");
            return;
        };
        reply.append(bson::cstr!("setName"), config.name.as_str());
        reply.append(bson::cstr!("setVersion"), config.version);
        reply.append(bson::cstr!("secondary"), state == MemberState::Secondary);
        self.list(reply, "hosts", |member| matches!(member.role, MemberRole::Electable { .. }));
        self.list(reply, "passives", |member| member.role == MemberRole::Passive);
        self.list(reply, "arbiters", |member| member.role == MemberRole::Arbiter);
        if let Some(primary) = self.view.primary.and_then(|primary| config.member(primary)) {
            reply.append(bson::cstr!("primary"), primary.host.as_str());
        }
        match me.role {
            MemberRole::Electable { .. } => {}
            MemberRole::Passive => reply.append(bson::cstr!("passive"), true),
            MemberRole::Hidden => {
                reply.append(bson::cstr!("passive"), true);
                reply.append(bson::cstr!("hidden"), true);
            }
            MemberRole::Arbiter => reply.append(bson::cstr!("arbiterOnly"), true),
        }
        if !me.tags.is_empty() {
            reply.append(bson::cstr!("tags"), me.tags_document());
        }
        reply.append(bson::cstr!("me"), me.host.as_str());
        if state == MemberState::Primary {
            reply.append(bson::cstr!("electionId"), self.election_id());
        }
        let op_time = document! { "ts": time, "t": self.view.term };
        let date = date(Duration::from_secs(unix.as_secs()));
        reply.append(
            bson::cstr!("lastWrite"),
            document! { "opTime": op_time.clone(), "lastWriteDate": date, "majorityOpTime": op_time, "majorityWriteDate": date },
        );
    }

    /// The id of the last election; ids of elections grow.
    fn election_id(&self) -> ObjectId {
        let mut bytes = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&self.view.term.to_be_bytes());
        ObjectId::from_bytes(bytes)
    }

    /// The hosts of the members that `are_listed`. Every set has `hosts`; the other lists are left out if they are empty.
    fn list(&self, reply: &mut RawDocumentBuf, name: &str, are_listed: impl Fn(&MemberConfig) -> bool) {
        let mut hosts = RawArrayBuf::new();
        let mut is_empty = name != "hosts";
        for member in self.view.config.members.iter().filter(|member| are_listed(member)) {
            hosts.push(member.host.as_str());
            is_empty = false;
        }
        if !is_empty {
            crate::request::append(reply, name, &hosts);
        }
    }
}
