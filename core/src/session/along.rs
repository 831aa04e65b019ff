//! What goes along with a command: its session, its transaction number, the cluster's time, concerns and the read preference.
//!
//! Operations and plain connections have this from here; which command takes what is in the table of
//! `connection/command_traits.rs`. A command is never changed, and what it says itself stays. Only a read concern of its own, in a
//! session that is causally consistent, is replaced by the same one with `afterClusterTime`, unless it names a time itself, and in a
//! snapshot session by that of the snapshot. The commands of a transaction take the concerns and the preference from its first one.

use alloc::borrow::ToOwned;
use alloc::sync::Arc;

use bson::{RawDocument, RawDocumentBuf, Timestamp, cstr};

use super::causality::Causality;
use super::cluster_time::ClusterTime;
use super::server_session::SessionId;
use super::snapshot::Snapshot;
use super::transaction::{Transaction, TransactionCommand};
use crate::connection::{Addition, ClientField, Command, Outline, Peer, Role};
use crate::options::ReadPreference;
use crate::server::{CommandDefaults, sent_read_preference, wants_no_reply};
use crate::topology::ServerSelector;
use crate::wire::Field;
use crate::wire::document::without;

/// What there is to go along with a command.
#[derive(Clone, Debug, Default)]
pub struct Along<'a> {
    /// The session's id.
    pub lsid: Option<SessionId>,
    /// The transaction number.
    pub number: Option<i64>,
    /// The command's part in a transaction.
    pub part: Option<Part<'a>>,
    /// The client's time of the cluster.
    pub cluster_time: Option<Arc<ClusterTime>>,
    /// What the user's own session has seen.
    pub causality: Option<&'a Causality>,
    /// The snapshot of a snapshot session.
    pub snapshot: Option<&'a Snapshot>,
    /// Which members serve the reads.
    pub reads: ReadsBy<'a>,
    /// The concerns and the read preference that the client's options set.
    pub defaults: Option<&'a CommandDefaults>,
    /// Whether the operation has a limit of time, which takes the place of `wtimeout` (CSOT-3).
    pub has_limit: bool,
}

/// A command's part in a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The transaction.
    pub transaction: &'a Transaction,
    /// What the command is to it.
    pub command: TransactionCommand,
    /// Whether the command starts the transaction at the server.
    pub is_first: bool,
}

/// Which read preference goes along with a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadsBy<'a> {
    /// The client's, with reads.
    #[default]
    Client,
    /// The client's, with reads, and the server serves them whatever it is: it was named, as with a direct connection (SEL-36).
    NamedServer,
    /// The primary's: reads go where writes go.
    Primary,
    /// The one that the connection's server was selected by, with reads.
    Connection(&'a ReadPreference),
    /// The one that the command's server was selected by, whatever the command is (SEL-33).
    Command(&'a ReadPreference),
}

/// Places for the fields of a [`Composed`].
pub const PLACES: [Field<'static>; 4] = [Field::Boolean("", false); 4];

/// A command as it is to be sent. The fields of most commands are borrowed from here one by one, so that none is copied before it is
/// sent.
#[derive(Debug, Default)]
pub struct Composed {
    /// The command without its read concern, if that was replaced.
    pub body: Option<RawDocumentBuf>,
    lsid: Option<[u8; 30]>,
    number: Option<i64>,
    cluster_time: Option<Arc<ClusterTime>>,
    /// All others.
    others: Option<RawDocumentBuf>,
}

impl<'a> ReadsBy<'a> {
    /// The read preference of an operation, whose selector says which members may serve it.
    pub fn of_operation(selector: &'a ServerSelector) -> Self {
        match selector {
            ServerSelector::ReadPreference(preference) => Self::Command(preference),
            ServerSelector::AnyOf(_) | ServerSelector::Pinned(_) => Self::NamedServer,
            ServerSelector::Among { selector, .. } => Self::of_operation(selector),
            ServerSelector::Writable => Self::Primary,
        }
    }

    /// The read preference of the commands on a connection, by the selector of its check-out. `None`: it was checked out for writes.
    pub fn of_connection(selector: Option<&'a ServerSelector>) -> Self {
        match selector {
            Some(ServerSelector::ReadPreference(preference)) => Self::Connection(preference),
            Some(ServerSelector::AnyOf(_) | ServerSelector::Pinned(_)) => Self::NamedServer,
            Some(ServerSelector::Among { selector, .. }) => Self::of_connection(Some(selector)),
            Some(ServerSelector::Writable) | None => Self::Client,
        }
    }
}

impl Composed {
    /// The fields of the command and those that go along, in these places.
    pub fn fields<'f>(&'f self, places: &'f mut [Field<'f>; PLACES.len()]) -> &'f [Field<'f>] {
        let mut free = places.iter_mut();
        let mut put = |field| free.next().into_iter().for_each(|place| *place = field);
        if let Some(lsid) = self.lsid.as_ref().and_then(|bytes| RawDocument::from_bytes(bytes).ok()) {
            put(Field::Document("lsid", lsid));
        }
        if let Some(number) = self.number {
            put(Field::Int64("txnNumber", number));
        }
        if let Some(time) = &self.cluster_time {
            put(Field::Document("$clusterTime", time.document()));
        }
        if let Some(others) = &self.others {
            put(Field::All(others));
        }
        let count = PLACES.len() - free.len();
        places.get(..count).unwrap_or_default()
    }

    fn others(&mut self) -> &mut RawDocumentBuf {
        self.others.get_or_insert_default()
    }

    /// Takes the command's own read concern away.
    fn drop_read_concern(&mut self, body: &RawDocument) {
        const NAME: &str = "readConcern";
        // What is malformed stays: it is refused where the command is sent.
        self.body = without(body, NAME);
        if let Some(rest) = self.others.as_ref().and_then(|others| without(others, NAME)) {
            self.others = Some(rest);
        }
    }
}

/// What goes along with the command to this server.
pub fn compose(command: &Command<'_>, outline: &Outline<'_>, server: Peer, along: &Along<'_>) -> Composed {
    let is_new = |field| !outline.has(field);
    let seen = later(along.cluster_time.as_ref(), along.causality.and_then(Causality::cluster_time));
    let mut composed = Composed {
        lsid: along.lsid.filter(|_| is_new(ClientField::SessionId)).map(SessionId::document_bytes),
        number: along.number.filter(|_| is_new(ClientField::TransactionNumber)),
        cluster_time: seen.filter(|_| server.role != Role::Standalone && is_new(ClientField::ClusterTime)),
        ..Composed::default()
    };
    command.fields.iter().for_each(|field| field.append_to(composed.others()));
    if let Some(part) = along.part {
        append_part(composed.others(), part, along);
    } else if is_new(ClientField::Autocommit) {
        append_read_concern(&mut composed, outline, server, along);
        append_write_concern(&mut composed, command, outline, along);
        if is_new(ClientField::ReadPreference)
            && let Some(preference) = read_preference(outline, server, along)
        {
            composed.others().append(cstr!("$readPreference"), preference);
        }
    }
    composed
}

/// Whether a session goes along with a command: not with one that has no reply, because the server cannot say that it is done with
/// it (SES-10).
pub fn takes_session(command: &Command<'_>, outline: &Outline<'_>) -> bool {
    command.acknowledged && outline.takes(Addition::Session)
}

/// The later time of the client's and the session's.
fn later(of_client: Option<&Arc<ClusterTime>>, of_session: Option<&ClusterTime>) -> Option<Arc<ClusterTime>> {
    let later = ClusterTime::greater(of_client.map(Arc::as_ref), of_session)?;
    let of_client = of_client.filter(|own| core::ptr::eq(Arc::as_ptr(own), later));
    Some(of_client.map_or_else(|| Arc::new(later.clone()), Arc::clone))
}

fn append_part(fields: &mut RawDocumentBuf, part: Part<'_>, along: &Along<'_>) {
    let Part { transaction, command, is_first } = part;
    transaction.append_fields(fields, command, is_first, along.causality.and_then(Causality::after_cluster_time));
    if command != TransactionCommand::Operation
        && let Some(concern) = transaction.write_concern(command, along.has_limit)
    {
        fields.append(cstr!("writeConcern"), concern);
    }
}

fn append_read_concern(composed: &mut Composed, outline: &Outline<'_>, server: Peer, along: &Along<'_>) {
    if let Some(snapshot) = along.snapshot {
        if outline.has(ClientField::ReadConcern) {
            composed.drop_read_concern(outline.body);
        }
        composed.others().append(cstr!("readConcern"), snapshot.read_concern());
        return;
    }
    let after = along.causality.and_then(Causality::after_cluster_time);
    // A standalone has no cluster's time to wait for.
    let after = after.filter(|_| outline.takes(Addition::AfterClusterTime) && server.role != Role::Standalone);
    match (outline.read_concern, after) {
        // Servers refuse a read that names both times.
        (Some(own), Some(after)) if lacks(own, "afterClusterTime") && lacks(own, "atClusterTime") => {
            composed.drop_read_concern(outline.body);
            composed.others().append(cstr!("readConcern"), with_time(own, after));
        }
        // One that is no document is the server's to refuse.
        (_, _) if outline.has(ClientField::ReadConcern) => {}
        (_, Some(after)) => {
            let none = RawDocumentBuf::new();
            let default = along.defaults.and_then(|own| own.read_concern(outline));
            composed.others().append(cstr!("readConcern"), with_time(default.unwrap_or(&none), after));
        }
        (_, None) => {
            if let Some(default) = along.defaults.and_then(|own| own.read_concern(outline)) {
                composed.others().append(cstr!("readConcern"), default);
            }
        }
    }
}

fn append_write_concern(composed: &mut Composed, command: &Command<'_>, outline: &Outline<'_>, along: &Along<'_>) {
    if outline.has(ClientField::WriteConcern) {
        return;
    }
    let concern = along.defaults.and_then(|own| own.write_concern(outline, along.has_limit));
    // A command that wants no reply takes no concern that asks for one.
    if let Some(concern) = concern.filter(|concern| command.acknowledged || wants_no_reply(concern)) {
        composed.others().append(cstr!("writeConcern"), concern);
    }
}

fn read_preference(outline: &Outline<'_>, server: Peer, along: &Along<'_>) -> Option<RawDocumentBuf> {
    let primary = ReadPreference::default();
    let of_client = along.defaults.and_then(CommandDefaults::read_preference);
    let (preference, is_named) = match along.reads {
        ReadsBy::Client => (of_client?, false),
        ReadsBy::NamedServer => (of_client.unwrap_or(&primary), true),
        ReadsBy::Primary => (&primary, false),
        ReadsBy::Connection(preference) | ReadsBy::Command(preference) => (preference, false),
    };
    if !matches!(along.reads, ReadsBy::Command(_)) && !outline.takes(Addition::ReadPreference) {
        return None;
    }
    let is_direct = is_named || along.defaults.is_some_and(CommandDefaults::is_direct);
    sent_read_preference(preference, server, is_direct)
}

fn lacks(concern: &RawDocument, name: &str) -> bool {
    concern.get(name).is_ok_and(|field| field.is_none())
}

fn with_time(concern: &RawDocument, after: Timestamp) -> RawDocumentBuf {
    let mut concern = concern.to_owned();
    concern.append(cstr!("afterClusterTime"), after);
    concern
}

#[cfg(test)]
#[path = "along_tests.rs"]
mod tests;
