//! The configuration of a replica set: its members, and the documents that show and change it (`replSetGetConfig`,
//! `replSetReconfig`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use cmap_core::wire::integer;

use crate::document::document;
use crate::failure::fail;
use crate::request::{Arguments, append};
use crate::store::{CommandFailure, code};

/// The most members of a set, and the most of them that vote, as on a server.
const MOST_MEMBERS: usize = 50;
const MOST_VOTERS: usize = 7;

/// A member of a deployment. In a replica set it is the `_id` of its configuration, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub(crate) i32);

/// The configuration of a replica set.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SetConfig {
    /// The set's name: `setName`.
    pub name: String,
    /// Its version: `setVersion`. Each change has a greater one.
    pub version: i32,
    /// The members, in the order in which they are listed.
    pub members: Vec<MemberConfig>,
}

/// The configuration of one member.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemberConfig {
    /// Its id.
    pub id: MemberId,
    /// `host:port`, as clients reach it.
    pub host: String,
    /// What it can become, and who sees it.
    pub role: MemberRole,
    /// Whether it votes in elections. An electable member does, whatever this says.
    pub votes: bool,
    /// Its tags, by which clients choose members to read from.
    pub tags: BTreeMap<String, String>,
}

/// What a member can become, and who sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MemberRole {
    /// It can be elected; a greater priority goes first. Greater than zero.
    Electable {
        /// The priority.
        priority: f64,
    },
    /// It has documents and priority 0: clients read from it, and it is never elected.
    Passive,
    /// It has documents, and no client learns about it.
    Hidden,
    /// It votes, and has no documents.
    Arbiter,
}

impl MemberId {
    /// The first member; of a single server, the only one.
    pub const FIRST: Self = Self(0);

    /// The number.
    pub fn get(self) -> i32 {
        self.0
    }
}

impl MemberConfig {
    /// An electable member of priority 1, without tags.
    pub fn new(id: i32, host: impl Into<String>) -> Self {
        let role = MemberRole::Electable { priority: 1.0 };
        Self { id: MemberId(id), host: host.into(), role, votes: true, tags: BTreeMap::new() }
    }

    /// Changes the role.
    #[must_use]
    pub fn with_role(mut self, role: MemberRole) -> Self {
        self.role = role;
        self
    }

    /// Adds a tag.
    #[must_use]
    pub fn with_tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Its id and its host.
    pub(crate) fn place(&self) -> (MemberId, String) {
        (self.id, self.host.clone())
    }

    /// Whether it has documents.
    pub fn bears_data(&self) -> bool {
        self.role != MemberRole::Arbiter
    }

    /// Whether it votes.
    pub fn is_voter(&self) -> bool {
        self.votes || self.priority() > 0.0
    }

    /// Its priority; zero unless it is electable.
    pub fn priority(&self) -> f64 {
        match self.role {
            MemberRole::Electable { priority } => priority,
            MemberRole::Passive | MemberRole::Hidden | MemberRole::Arbiter => 0.0,
        }
    }

    pub(crate) fn tags_document(&self) -> RawDocumentBuf {
        let mut tags = RawDocumentBuf::new();
        self.tags.iter().for_each(|(name, value)| append(&mut tags, name, value.as_str()));
        tags
    }

    fn to_document(&self) -> RawDocumentBuf {
        document! {
            "_id": self.id.0, "host": self.host.as_str(), "arbiterOnly": self.role == MemberRole::Arbiter, "buildIndexes": true,
            "hidden": self.role == MemberRole::Hidden, "priority": self.priority(), "tags": self.tags_document(),
            "secondaryDelaySecs": 0_i64, "votes": i32::from(self.is_voter()),
        }
    }

    /// Reads one of the `members` of `replSetReconfig`.
    fn read(member: Arguments<'_>) -> Result<Self, CommandFailure> {
        const KNOWN: [&str; 10] = [
            "_id",
            "host",
            "arbiterOnly",
            "buildIndexes",
            "hidden",
            "priority",
            "tags",
            "secondaryDelaySecs",
            "slaveDelay",
            "votes",
        ];
        if let Some(name) = member.names().find(|name| !KNOWN.contains(&name.as_str())) {
            return Err(fail(115, format!("the field members.{name} is not supported by this test server")));
        }
        for delay in ["secondaryDelaySecs", "slaveDelay"] {
            if member.integer(delay)?.is_some_and(|delay| delay != 0) {
                return Err(fail(
                    115,
                    "a delayed member is not supported by this test server; testDeployment sets a lag",
                ));
            }
        }
        let id = member.integer("_id")?.and_then(|id| i32::try_from(id).ok()).filter(|id| (0..=255).contains(id));
        let id = id.ok_or_else(|| invalid("members._id has to be a number from 0 to 255"))?;
        let host = member.text("host")?.filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("members.host is missing"))?;
        let priority = match member.get("priority") {
            None => None,
            Some(value) => Some(number(value).ok_or_else(|| fail(14, "members.priority has to be a number"))?),
        };
        if priority.is_some_and(|priority| !(0.0..=1000.0).contains(&priority)) {
            return Err(invalid("members.priority has to be from 0 to 1000"));
        }
        let is_electable = priority != Some(0.0);
        let role = match (member.flag("arbiterOnly"), member.flag("hidden"), is_electable) {
            (true, _, _) => MemberRole::Arbiter,
            (false, true, true) => return Err(invalid("priority must be 0 when hidden=true")),
            (false, true, false) => MemberRole::Hidden,
            (false, false, true) => MemberRole::Electable { priority: priority.unwrap_or(1.0) },
            (false, false, false) => MemberRole::Passive,
        };
        let votes = member.integer("votes")?.unwrap_or(1);
        if !(0..=1).contains(&votes)
            || (votes == 0 && matches!(role, MemberRole::Electable { .. } | MemberRole::Arbiter))
        {
            return Err(invalid("members.votes has to be 1, or 0 for a member with documents and priority 0"));
        }
        let mut tags = BTreeMap::new();
        for field in member.document("tags")?.map(|tags| tags.0).into_iter().flatten() {
            let Ok((name, RawBsonRef::String(value))) = field else {
                return Err(fail(14, "members.tags has to be a document of strings"));
            };
            tags.insert(name.as_str().to_owned(), value.to_owned());
        }
        Ok(Self { id: MemberId(id), host: host.to_owned(), role, votes: votes == 1, tags })
    }
}

impl SetConfig {
    /// The first version of a set.
    pub fn new(name: impl Into<String>, members: Vec<MemberConfig>) -> Self {
        Self { name: name.into(), version: 1, members }
    }

    /// The configuration of a member.
    pub fn member(&self, id: MemberId) -> Option<&MemberConfig> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The configuration of the member that clients reach at `host`.
    pub fn member_at(&self, host: &str) -> Option<&MemberConfig> {
        self.members.iter().find(|member| member.host == host)
    }

    /// The members with documents.
    pub(crate) fn data_bearing(&self) -> impl Iterator<Item = &MemberConfig> {
        self.members.iter().filter(|member| member.bears_data())
    }

    /// How many votes a primary needs.
    pub(crate) fn majority(&self) -> usize {
        self.members.iter().filter(|member| member.is_voter()).count() / 2 + 1
    }

    /// How many members have to have a write before a majority has it for good: as many as vote, but no more than have
    /// documents.
    pub(crate) fn write_majority(&self) -> usize {
        let voters = self.data_bearing().filter(|member| member.is_voter()).count();
        self.majority().min(voters)
    }

    /// Whether a write waits for a majority if it says nothing. Not where arbiters could make that impossible.
    pub(crate) fn defaults_to_majority(&self) -> bool {
        let voters = self.data_bearing().filter(|member| member.is_voter()).count();
        voters == self.members.iter().filter(|member| member.is_voter()).count() || voters > self.majority()
    }

    /// The `config` of `replSetGetConfig`.
    pub(crate) fn to_document(&self, term: i64, election_timeout: Duration) -> RawDocumentBuf {
        let mut members = RawArrayBuf::new();
        self.members.iter().for_each(|member| members.push(member.to_document()));
        let election_timeout = i32::try_from(election_timeout.as_millis()).unwrap_or(i32::MAX);
        document! {
            "_id": self.name.as_str(), "version": self.version, "term": term, "members": members,
            "protocolVersion": 1_i64, "settings": document! { "electionTimeoutMillis": election_timeout },
        }
    }

    /// Reads the argument of `replSetReconfig`.
    pub(crate) fn read(config: Arguments<'_>) -> Result<Self, CommandFailure> {
        let name = config.text("_id")?.ok_or_else(|| invalid("_id is missing"))?;
        let version = config.integer("version")?.and_then(|version| i32::try_from(version).ok()).filter(|it| *it > 0);
        let version = version.ok_or_else(|| invalid("version has to be a positive number"))?;
        let mut members = Vec::new();
        for member in config.array("members")?.into_iter().flatten() {
            let member = member.ok().and_then(|member| member.as_document());
            let member = member.ok_or_else(|| fail(14, "members has to be an array of documents"))?;
            members.push(MemberConfig::read(Arguments(member))?);
        }
        let config = Self { name: name.to_owned(), version, members };
        config.check().map(|()| config)
    }

    /// Refuses a configuration that no server would take.
    fn check(&self) -> Result<(), CommandFailure> {
        let ids: BTreeSet<_> = self.members.iter().map(|member| member.id).collect();
        let hosts: BTreeSet<_> = self.members.iter().map(|member| &member.host).collect();
        let voters = self.members.iter().filter(|member| member.is_voter()).count();
        let problem = if self.members.is_empty() || self.members.len() > MOST_MEMBERS {
            "there have to be 1 to 50 members"
        } else if ids.len() < self.members.len() || hosts.len() < self.members.len() {
            "two members have the same _id or the same host"
        } else if voters > MOST_VOTERS {
            "at most 7 members may vote"
        } else if self.members.iter().all(|member| member.priority() <= 0.0) {
            "one member at least has to be electable"
        } else {
            return Ok(());
        };
        Err(invalid(problem))
    }
}

fn number(value: RawBsonRef<'_>) -> Option<f64> {
    value.as_f64().or_else(|| integer(value).and_then(|number| i32::try_from(number).ok()).map(f64::from))
}

fn invalid(problem: &str) -> CommandFailure {
    fail(code::INVALID_REPLICA_SET_CONFIG, format!("the new configuration of the set is invalid: {problem}"))
}
