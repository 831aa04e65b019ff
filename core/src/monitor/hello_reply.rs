//! From a hello's reply to a description of the server that sent it.
//!
//! Fields that are missing or of a wrong type are left out: an odd reply makes an odd description. Only one with far too many tags
//! or members is not believed, and the server stays unknown.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use bson::{RawBsonRef, RawDocument};

use super::description::{ServerDescription, ServerType};
use crate::address::ServerAddress;
use crate::pool::Cause;
use crate::topology_version::TopologyVersion;
use crate::wire::integer;

/// The most tags of a server that are believed, so that no server makes this client keep many megabytes of them.
const MOST_TAGS: usize = 100;

/// The most bytes that their names and values have together.
const MOST_BYTES_OF_TAGS: usize = 16 * 1024;

/// The most members of its set that a server may name, for the same reason. MongoDB allows 50.
const MOST_MEMBERS: usize = 100;

impl ServerDescription {
    /// The description that `reply`, to a hello that succeeded, gives of the server at `address`. The caller fills in
    /// the round-trip times and the time of the reply. A server with more than 100 tags, or with more than 16 KiB of them, or that
    /// names more than 100 members of its set, is not believed: it is unknown, with that error.
    pub fn of_reply(address: Arc<ServerAddress>, reply: &RawDocument) -> Self {
        let fields = Fields(reply);
        let (tags, [hosts, passives, arbiters]) = match fields.tags().and_then(|tags| Ok((tags, fields.members()?))) {
            Ok(believed) => believed,
            Err(error) => return Self::unknown(address, error),
        };
        let version = |name| fields.number(name).and_then(|version| i32::try_from(version).ok()).unwrap_or_default();
        let last_write = reply.get_document("lastWrite").ok();
        let last_write = last_write.and_then(|last_write| last_write.get_datetime("lastWriteDate").ok());
        Self {
            wire_versions: Some((version("minWireVersion"), version("maxWireVersion"))),
            me: fields.host("me"),
            hosts,
            passives,
            arbiters,
            tags,
            set_name: fields.set_name().map(ToString::to_string),
            set_version: fields.number("setVersion"),
            election_id: reply.get_object_id("electionId").ok().map(|id| id.bytes()),
            primary: fields.host("primary"),
            last_write_date: last_write.map(bson::DateTime::timestamp_millis),
            logical_session_timeout_minutes: fields.number("logicalSessionTimeoutMinutes"),
            topology_version: reply.get_document("topologyVersion").ok().and_then(TopologyVersion::read),
            ..Self::new(address, fields.server_type())
        }
    }
}

struct Fields<'a>(&'a RawDocument);

impl<'a> Fields<'a> {
    /// A member of a set that has no configuration yet, and therefore neither a name of it nor members (TOP-12).
    fn is_ghost(&self) -> bool {
        self.flag("isreplicaset")
    }

    fn server_type(&self) -> ServerType {
        if self.is_ghost() {
            ServerType::RsGhost
        } else if self.text("setName").is_some() {
            // The older name counts only where the newer one is missing (TOP-11).
            let writable = if self.get("isWritablePrimary").is_some() { "isWritablePrimary" } else { "ismaster" };
            if self.flag(writable) {
                ServerType::RsPrimary
            } else if self.flag("hidden") {
                ServerType::RsOther
            } else if self.flag("secondary") {
                ServerType::RsSecondary
            } else if self.flag("arbiterOnly") {
                ServerType::RsArbiter
            } else {
                ServerType::RsOther
            }
        } else if self.text("msg") == Some("isdbgrid") {
            ServerType::Mongos
        } else {
            ServerType::Standalone
        }
    }

    fn get(&self, name: &str) -> Option<RawBsonRef<'a>> {
        self.0.get(name).ok().flatten()
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(RawBsonRef::as_bool).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(integer)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    fn set_name(&self) -> Option<&'a str> {
        self.text("setName").filter(|_| !self.is_ghost())
    }

    /// Lower-cased (SDAM-20), unless it is a path.
    fn host(&self, name: &str) -> Option<String> {
        self.text(name).map(ServerAddress::normalized)
    }

    /// The hosts, passives and arbiters of its set.
    fn members(&self) -> Result<[Vec<String>; 3], Cause> {
        if self.is_ghost() {
            return Ok([Vec::new(), Vec::new(), Vec::new()]);
        }
        let lists = ["hosts", "passives", "arbiters"];
        let count: usize = lists.iter().map(|list| self.texts(list).count()).sum();
        if count > MOST_MEMBERS {
            let text = format!(
                "the server names {count} members of its set, and at most {MOST_MEMBERS} are believed: check that the server is \
                 one of your set"
            );
            return Err(Cause::new(&text));
        }
        Ok(lists.map(|list| self.texts(list).map(ServerAddress::normalized).collect()))
    }

    /// The texts in an array.
    fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let array = self.get(name).and_then(RawBsonRef::as_array);
        array.into_iter().flatten().filter_map(|text| text.ok()?.as_str())
    }

    fn tags(&self) -> Result<BTreeMap<String, String>, Cause> {
        let document = self.get("tags").and_then(RawBsonRef::as_document);
        let (mut tags, mut bytes) = (BTreeMap::new(), 0);
        for (name, value) in document.into_iter().flatten().filter_map(Result::ok) {
            let Some(value) = value.as_str() else { continue };
            bytes += name.as_str().len() + value.len();
            if tags.len() == MOST_TAGS || bytes > MOST_BYTES_OF_TAGS {
                let text = format!(
                    "the server has more tags than are believed: at most {MOST_TAGS}, of {MOST_BYTES_OF_TAGS} bytes together"
                );
                return Err(Cause::new(&text));
            }
            tags.insert(name.as_str().to_string(), value.to_string());
        }
        Ok(tags)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

    use super::*;

    fn read(reply: &RawDocumentBuf) -> ServerDescription {
        ServerDescription::of_reply(Arc::new(ServerAddress::tcp("a", 1)), reply)
    }

    #[test]
    fn a_server_is_what_its_fields_say() {
        for (reply, server_type) in [
            (rawdoc! { "ismaster": true }, ServerType::Standalone),
            (rawdoc! { "msg": "isdbgrid" }, ServerType::Mongos),
            (rawdoc! { "isreplicaset": true }, ServerType::RsGhost),
            (rawdoc! { "setName": "rs", "ismaster": true }, ServerType::RsPrimary),
            (rawdoc! { "setName": "rs", "isWritablePrimary": true }, ServerType::RsPrimary),
            (rawdoc! { "setName": "rs", "secondary": true }, ServerType::RsSecondary),
            (rawdoc! { "setName": "rs", "secondary": true, "hidden": true }, ServerType::RsOther),
            (rawdoc! { "setName": "rs", "arbiterOnly": true }, ServerType::RsArbiter),
            (rawdoc! { "setName": "rs" }, ServerType::RsOther),
        ] {
            assert_eq!(read(&reply).server_type, server_type, "{reply:?}");
        }
    }

    #[test]
    fn the_older_name_of_a_primary_counts_only_where_the_newer_is_missing_top_11() {
        let both = |newer: bool, older: bool| {
            read(&rawdoc! { "setName": "rs", "isWritablePrimary": newer, "ismaster": older, "secondary": true })
                .server_type
        };

        assert_eq!((both(false, true), both(true, false)), (ServerType::RsSecondary, ServerType::RsPrimary));
    }

    #[test]
    fn a_ghost_has_neither_a_set_s_name_nor_its_members_top_12() {
        let ghost = read(&rawdoc! { "isreplicaset": true, "setName": "rs", "hosts": ["a:1"], "arbiters": ["b:1"] });

        assert_eq!((ghost.server_type, ghost.set_name), (ServerType::RsGhost, None));
        assert_eq!([ghost.hosts, ghost.passives, ghost.arbiters], [const { Vec::<String>::new() }; 3]);
    }

    #[test]
    fn host_names_are_lower_cased_and_odd_fields_left_out() {
        let description = read(&rawdoc! {
            "hosts": ["A:1", 5, "b:2"], "me": "A:1", "primary": 7, "tags": { "x": "y", "z": 1 },
            "maxWireVersion": 21.0, "setVersion": "x",
        });

        assert_eq!((description.hosts, description.me.as_deref()), (vec!["a:1".into(), "b:2".into()], Some("a:1")));
        assert_eq!((description.primary, description.set_version), (None, None));
        assert_eq!(description.tags.len(), 1);
        assert_eq!(description.wire_versions, Some((0, 21)));
    }

    /// A secondary with these tags.
    fn tagged(tags: impl IntoIterator<Item = (String, String)>) -> ServerDescription {
        let mut document = RawDocumentBuf::new();
        for (name, value) in tags {
            document.append(bson::raw::CString::try_from(name).unwrap(), value);
        }
        read(&rawdoc! { "setName": "rs", "secondary": true, "tags": document })
    }

    #[test]
    fn a_server_with_too_many_tags_is_not_believed() {
        let numbered = |count: u32| (0..count).map(|number| (number.to_string(), "v".to_string()));

        let (usual, too_many) = (tagged(numbered(100)), tagged(numbered(50_000)));
        let too_long = tagged([("t".to_string(), "v".repeat(MOST_BYTES_OF_TAGS))]);

        assert_eq!((usual.server_type, usual.tags.len()), (ServerType::RsSecondary, 100));
        for refused in [tagged(numbered(101)), too_many, too_long] {
            assert_eq!((refused.server_type, refused.tags.len()), (ServerType::Unknown, 0));
            assert!(refused.error.unwrap().to_string().contains("tags"));
        }
    }

    #[test]
    fn a_server_that_names_too_many_members_is_not_believed() {
        let named = |count: u32| (0..count).map(|number| format!("h{number}:1"));
        let naming = |hosts: u32, arbiters: u32| {
            let [hosts, arbiters] = [named(hosts), named(arbiters)].map(RawArrayBuf::from_iter);
            read(&rawdoc! { "setName": "rs", "secondary": true, "hosts": hosts, "arbiters": arbiters })
        };

        let (most, too_many) = (naming(60, 40), naming(60, 41));

        assert_eq!((most.server_type, most.hosts.len(), most.arbiters.len()), (ServerType::RsSecondary, 60, 40));
        assert_eq!((too_many.server_type, too_many.hosts.len()), (ServerType::Unknown, 0));
        let why = too_many.error.unwrap().to_string();
        assert!(why.contains("names 101 members of its set, and at most 100 are believed"), "{why}");
    }

    #[test]
    fn the_path_of_a_unix_socket_is_as_the_server_writes_it_sdam_20() {
        let path = "/tmp/Set/Member.sock";

        let description = read(&rawdoc! { "hosts": [path], "me": path, "primary": path });

        assert_eq!((description.hosts, description.me.as_deref()), (vec![path.into()], Some(path)));
        assert_eq!(description.primary.as_deref(), Some(path));
    }
}
