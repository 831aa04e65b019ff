//! What goes along with a command: its session, its transaction number, the cluster's time, concerns and the read preference.
//!
//! A command is never changed, and what it says itself stays. Only a read concern of its own, in a session that is causally
//! consistent, is replaced by the same one with `afterClusterTime`.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf, Timestamp, cstr};
use cmap_core::connection::{ClientField, Command, Outline, Role};
use cmap_core::options::ReadPreference;
use cmap_core::retry::{RetryOption, Retryability};
use cmap_core::server::{CommandDefaults, ServerType, sent_read_preference, takes_read_concern, takes_read_preference};
use cmap_core::session::{Causality, ClusterTime, SessionId, Snapshot, Transaction, TransactionCommand};
use cmap_core::wire::{Field, integer};

use super::error::OperationErrorKind;
use crate::connection::Connection;
use crate::runtime::Runtime;

/// Commands that carry no session (SES-10).
const WITHOUT_SESSION: [&str; 4] = ["parallelCollectionScan", "hello", "isMaster", "ismaster"];

/// Writes that see what a causally consistent session has seen.
const CAUSAL_WRITES: [&str; 6] = ["insert", "update", "delete", "findAndModify", "findandmodify", "bulkWrite"];

/// What a connection's hello said of its server.
#[derive(Clone, Copy)]
pub(super) struct ServerOf {
    pub(super) role: Role,
    pub(super) is_load_balanced: bool,
    pub(super) has_sessions: bool,
    pub(super) max_wire_version: i32,
}

/// What is to go along.
pub(super) struct Along<'a> {
    pub(super) lsid: Option<SessionId>,
    pub(super) number: Option<i64>,
    /// Its part in a transaction.
    pub(super) part: Option<Part<'a>>,
    /// The client's.
    pub(super) cluster_time: Option<Arc<ClusterTime>>,
    /// The session's.
    pub(super) causality: Option<&'a Causality>,
    /// That of a snapshot session.
    pub(super) snapshot: Option<&'a Snapshot>,
    pub(super) preference: Option<&'a ReadPreference>,
    /// Whether the operation named its server, which then serves reads whatever it is.
    pub(super) names_server: bool,
    pub(super) defaults: Option<&'a CommandDefaults>,
}

/// A command's part in a transaction.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) transaction: &'a Transaction,
    pub(super) command: TransactionCommand,
    /// Whether it starts the transaction at the server.
    pub(super) is_first: bool,
    /// Whether timeoutMS limits it.
    pub(super) has_timeout: bool,
}

/// Places for the fields of a [`Composed`].
pub(super) const PLACES: [Field<'static>; 4] = [Field::Boolean("", false); 4];

/// What goes along with a command. The fields of most commands are borrowed from here one by one, so that none is copied before
/// it is sent.
#[derive(Default)]
pub(super) struct Composed {
    /// The command without its read concern, if that was replaced.
    pub(super) body: Option<RawDocumentBuf>,
    lsid: Option<[u8; 30]>,
    number: Option<i64>,
    cluster_time: Option<Arc<ClusterTime>>,
    /// All others.
    others: Option<RawDocumentBuf>,
}

impl Composed {
    /// The fields, to be sent along, in these places.
    pub(super) fn fields<'f>(&'f self, places: &'f mut [Field<'f>; PLACES.len()]) -> &'f [Field<'f>] {
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
}

impl ServerOf {
    pub(super) fn connection<R: Runtime>(connection: &Connection<R>) -> Self {
        let nothing =
            Self { role: Role::Standalone, is_load_balanced: false, has_sessions: false, max_wire_version: 0 };
        connection.description().map_or(nothing, |said| {
            let is_load_balanced = said.service_id.is_some();
            let has_sessions = is_load_balanced || said.logical_session_timeout_minutes.is_some();
            Self { role: said.role, is_load_balanced, has_sessions, max_wire_version: said.wire_versions.1 }
        })
    }

    /// Whether it carries out a write once for each transaction number (RTY-4).
    pub(super) fn has_transaction_numbers(self) -> bool {
        self.has_sessions && (self.is_load_balanced || self.role != Role::Standalone)
    }

    fn server_type(self) -> ServerType {
        match self.role {
            _ if self.is_load_balanced => ServerType::LoadBalancer,
            Role::Mongos => ServerType::Mongos,
            Role::Member => ServerType::RsSecondary,
            Role::Standalone | _ => ServerType::Standalone,
        }
    }
}

/// What goes along with the command to this server.
pub(super) fn compose(command: &Command<'_>, outline: &Outline<'_>, server: ServerOf, along: Along<'_>) -> Composed {
    let is_new = |field| !outline.has(field);
    let seen = later(along.cluster_time.as_ref(), along.causality.and_then(Causality::cluster_time));
    let mut composed = Composed {
        lsid: along.lsid.filter(|_| is_new(ClientField::SessionId)).map(SessionId::document_bytes),
        number: along.number.filter(|_| is_new(ClientField::TransactionNumber)),
        cluster_time: seen.filter(|_| server.role != Role::Standalone && is_new(ClientField::ClusterTime)),
        ..Composed::default()
    };
    command.fields.iter().for_each(|field| field.append_to(composed.others()));
    if let Some(part) = &along.part {
        append_part(composed.others(), part, along.causality);
    }
    // The commands of a transaction take the rest from its first one.
    if along.part.is_none() && is_new(ClientField::Autocommit) {
        append_concerns(&mut composed, command, outline, server, &along);
        if is_new(ClientField::ReadPreference)
            && let Some(preference) = read_preference(command.body, server, &along)
        {
            composed.others().append(cstr!("$readPreference"), preference);
        }
    }
    composed
}

/// The later time of the client's and the session's.
fn later(of_client: Option<&Arc<ClusterTime>>, of_session: Option<&ClusterTime>) -> Option<Arc<ClusterTime>> {
    let later = ClusterTime::greater(of_client.map(Arc::as_ref), of_session)?;
    let of_client = of_client.filter(|own| std::ptr::eq(Arc::as_ptr(own), later));
    Some(of_client.map_or_else(|| Arc::new(later.clone()), Arc::clone))
}

fn append_part(fields: &mut RawDocumentBuf, part: &Part<'_>, causality: Option<&Causality>) {
    let Part { transaction, command, is_first, has_timeout } = *part;
    transaction.append_fields(fields, command, is_first, causality.and_then(Causality::after_cluster_time));
    if command != TransactionCommand::Operation
        && let Some(concern) = transaction.write_concern(command, has_timeout)
    {
        fields.append(cstr!("writeConcern"), concern);
    }
}

fn append_concerns(
    composed: &mut Composed,
    command: &Command<'_>,
    outline: &Outline<'_>,
    server: ServerOf,
    along: &Along<'_>,
) {
    let default = along.defaults.and_then(|own| own.read_concern(outline.name));
    let own = outline.read_concern;
    let after = along.causality.and_then(Causality::after_cluster_time);
    // A standalone has no cluster's time to wait for.
    let after = after.filter(|_| takes_after_cluster_time(outline.name) && server.role != Role::Standalone);
    match (own, after) {
        _ if along.snapshot.is_some() => {
            if own.is_some() {
                composed.body = Some(without_read_concern(command.body));
            }
            composed
                .others()
                .append(cstr!("readConcern"), along.snapshot.map(Snapshot::read_concern).unwrap_or_default());
        }
        (Some(own), Some(after)) if own.get("afterClusterTime").is_ok_and(|field| field.is_none()) => {
            composed.body = Some(without_read_concern(command.body));
            composed.others().append(cstr!("readConcern"), with_time(own, after));
        }
        (None, Some(after)) => {
            let none = RawDocumentBuf::new();
            composed.others().append(cstr!("readConcern"), with_time(default.unwrap_or(&none), after));
        }
        (None, None) => {
            if let Some(default) = default {
                composed.others().append(cstr!("readConcern"), default);
            }
        }
        (Some(_), _) => {}
    }
    let write_concern = along.defaults.and_then(|own| own.write_concern(command.body));
    // One that wants no reply takes no concern that asks for one.
    let goes_along = |concern: &&RawDocument| command.acknowledged || wants_no_reply(concern);
    if let Some(concern) = write_concern.filter(goes_along).filter(|_| !outline.has(ClientField::WriteConcern)) {
        composed.others().append(cstr!("writeConcern"), concern);
    }
}

/// The operation's selector says which members may serve it, and not the client's read preference (SEL-33 to SEL-36).
fn read_preference(body: &RawDocument, server: ServerOf, along: &Along<'_>) -> Option<RawDocumentBuf> {
    let is_direct = along.names_server || along.defaults.is_some_and(CommandDefaults::is_direct);
    match along.preference {
        Some(preference) => sent_read_preference(preference, server.server_type(), is_direct),
        None if is_direct && takes_read_preference(body) => {
            sent_read_preference(&ReadPreference::default(), server.server_type(), is_direct)
        }
        None => None,
    }
}

fn with_time(concern: &RawDocument, after: Timestamp) -> RawDocumentBuf {
    let mut concern = concern.to_owned();
    concern.append(cstr!("afterClusterTime"), after);
    concern
}

/// The body as it is, if not all of it can be read: then the read concern is there twice, and the command is not sent. One without its filter
/// would concern every document.
fn without_read_concern(body: &RawDocument) -> RawDocumentBuf {
    let mut rest = RawDocumentBuf::new();
    for field in body {
        match field {
            Ok((name, _)) if name.as_str() == "readConcern" => {}
            Ok((name, value)) => rest.append(name, value),
            Err(_) => return body.to_owned(),
        }
    }
    rest
}

/// Whether a command wants a reply, and its write concern is not `w: 0`.
pub(super) fn is_acknowledged(
    command: &Command<'_>,
    outline: &Outline<'_>,
    defaults: Option<&CommandDefaults>,
) -> bool {
    command.acknowledged && !write_concern(outline, defaults).is_some_and(wants_no_reply)
}

/// The write concern of a command: its own, or else the client's.
pub(super) fn write_concern<'a>(
    outline: &Outline<'a>,
    defaults: Option<&'a CommandDefaults>,
) -> Option<&'a RawDocument> {
    outline.write_concern.or_else(|| defaults?.write_concern(outline.body))
}

/// Whether a command with this write concern can go without a reply.
///
/// # Errors
/// It asks for the journal, or is run in a session of the user's.
pub(super) fn check_unacknowledged(concern: Option<&RawDocument>, in_session: bool) -> Result<(), OperationErrorKind> {
    let asks_for_journal = |concern: &RawDocument| concern.get_bool("j").is_ok_and(|journal| journal);
    if concern.is_some_and(|concern| wants_no_reply(concern) && asks_for_journal(concern)) {
        return Err(OperationErrorKind::UnacknowledgedJournal);
    }
    if in_session { Err(OperationErrorKind::UnacknowledgedInSession) } else { Ok(()) }
}

fn wants_no_reply(concern: &RawDocument) -> bool {
    concern.get("w").ok().flatten().and_then(integer) == Some(0)
}

/// Whether a causally consistent session tells with commands of this name what it has seen: with reads, and with the writes that
/// take a read concern for it (SES-15).
fn takes_after_cluster_time(name: &str) -> bool {
    takes_read_concern(name) || CAUSAL_WRITES.contains(&name)
}

/// Whether errors of single writes fail a command of this kind.
pub(super) fn writes(retryability: Retryability) -> bool {
    match retryability {
        Retryability::Write => true,
        Retryability::Read => false,
        Retryability::OverloadOnly { option, .. } => option == RetryOption::Writes,
    }
}

/// Whether a session goes along with a command: not with one that has no reply, because the server cannot say that it is done
/// with it (SES-10).
pub(super) fn takes_session(command: &Command<'_>, outline: &Outline<'_>) -> bool {
    command.acknowledged && !WITHOUT_SESSION.contains(&outline.name)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_command_that_cannot_be_read_loses_no_filter_with_its_read_concern() {
        let find = rawdoc! { "find": "c", "hint": "?", "readConcern": {}, "filter": { "owner": 7 } };
        let bytes = find.as_bytes().iter().map(|byte| if *byte == b'?' { 0xff } else { *byte });
        let damaged = RawDocumentBuf::from_bytes(bytes.collect()).unwrap();

        assert_eq!(without_read_concern(&damaged), damaged);
        assert_eq!(without_read_concern(&rawdoc! { "find": "c", "readConcern": {} }), rawdoc! { "find": "c" });
    }
}
