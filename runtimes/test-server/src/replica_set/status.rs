//! `replSetGetStatus`.

use std::time::Duration;

use bson::{RawArrayBuf, RawDocumentBuf, Timestamp};

use super::ReplicaSet;
use super::config::MemberConfig;
use super::view::{MemberState, View};
use crate::clock::date;
use crate::document::document;

impl ReplicaSet {
    /// `replSetGetStatus`. `time` is the time of the last operation that this member has.
    pub(crate) fn status(&self, time: Timestamp, unix: Duration) -> RawDocumentBuf {
        let View { config, term, .. } = &self.view;
        let op_time = document! { "ts": time, "t": *term };
        let mut members = RawArrayBuf::new();
        config.members.iter().for_each(|member| members.push(self.member_status(member, time)));
        document! {
            "set": config.name.as_str(), "date": date(unix), "myState": number(self.state()), "term": *term,
            "optimes": document! { "lastCommittedOpTime": op_time.clone(), "appliedOpTime": op_time.clone(), "durableOpTime": op_time },
            "members": members,
        }
    }

    fn member_status(&self, member: &MemberConfig, time: Timestamp) -> RawDocumentBuf {
        let state = self.view.state(member.id);
        let is_up = state != MemberState::Down;
        let mut status = document! {
            "_id": member.id.0, "name": member.host.as_str(), "health": if is_up { 1.0 } else { 0.0 }, "state": number(state),
            "stateStr": name(state), "uptime": i32::from(is_up),
        };
        if member.bears_data() {
            // What the others lack of this member's operations, they lack of its time's increment.
            let position = self.view.members.get(&member.id).map_or(0, |status| status.position.0);
            let behind = u32::try_from(self.position().0.saturating_sub(position)).unwrap_or(u32::MAX);
            let time = Timestamp { increment: time.increment.saturating_sub(behind), ..time };
            status.append(bson::cstr!("optime"), document! { "ts": time, "t": self.view.term });
        }
        status.append(bson::cstr!("configVersion"), self.view.config.version);
        if member.id == self.me {
            status.append(bson::cstr!("self"), true);
        }
        status
    }
}

fn number(state: MemberState) -> i32 {
    match state {
        MemberState::Primary => 1,
        MemberState::Secondary => 2,
        MemberState::Arbiter => 7,
        MemberState::Down => 8,
        MemberState::Removed => 10,
    }
}

fn name(state: MemberState) -> &'static str {
    match state {
        MemberState::Primary => "PRIMARY",
        MemberState::Secondary => "SECONDARY",
        MemberState::Arbiter => "ARBITER",
        MemberState::Down => "(not reachable/healthy)",
        MemberState::Removed => "REMOVED",
    }
}
