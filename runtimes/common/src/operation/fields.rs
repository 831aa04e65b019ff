//! What goes along with a command: its session, its transaction number, the cluster's time, concerns and the read preference.
//!
//! A command is never changed, and what it says itself stays. Only a read concern of its own, in a session that is causally
//! consistent, is replaced by the same one with `afterClusterTime`.

use bson::{RawDocument, RawDocumentBuf, Timestamp, cstr};
use cmap_core::connection::{ClientField, Command, Outline, Role};
use cmap_core::options::ReadPreference;
use cmap_core::retry::{RetryOption, Retryability};
use cmap_core::server::{CommandDefaults, ServerType, sent_read_preference, takes_read_concern, takes_read_preference};
use cmap_core::session::{Causality, ClusterTime, SessionId, Snapshot, Transaction, TransactionCommand};
use cmap_core::wire::integer;

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
    pub(super) cluster_time: Option<&'a ClusterTime>,
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

/// A command with what goes along.
pub(super) struct Composed {
    /// The command without its read concern, if that was replaced.
    pub(super) body: Option<RawDocumentBuf>,
    pub(super) fields: Option<RawDocumentBuf>,
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

/// The command as it is sent.
pub(super) fn compose(
    command: &Command<'_>,
    outline: &Outline<'_>,
    server: ServerOf,
    along: &Along<'_>,
) -> Composed {
    let mut fields = with_room(command.fields);
    let mut body = None;
    let is_new = |field| !outline.has(field);
    if let Some(lsid) = along.lsid.filter(|_| is_new(ClientField::SessionId)) {
        lsid.append_to(&mut fields);
    }
    if let Some(number) = along.number.filter(|_| is_new(ClientField::TransactionNumber)) {
        fields.append(cstr!("txnNumber"), number);
    }
    let seen = ClusterTime::greater(along.cluster_time, along.causality.and_then(Causality::cluster_time));
    if let Some(time) = seen.filter(|_| server.role != Role::Standalone && is_new(ClientField::ClusterTime)) {
        fields.append(cstr!("$clusterTime"), time.document());
    }
    if let Some(part) = &along.part {
        append_part(&mut fields, part, along.causality);
    }
    // The commands of a transaction take the rest from its first one.
    if along.part.is_none() && is_new(ClientField::Autocommit) {
        append_concerns(&mut fields, &mut body, (command, outline), server, along);
        let preference =
            is_new(ClientField::ReadPreference).then(|| read_preference(command.body, server, along)).flatten();
        if let Some(preference) = preference {
            fields.append(cstr!("$readPreference"), preference);
        }
    }
    Composed { body, fields: Some(fields).filter(|fields| !fields.is_empty()) }
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
    fields: &mut RawDocumentBuf,
    body: &mut Option<RawDocumentBuf>,
    (command, outline): (&Command<'_>, &Outline<'_>),
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
                *body = Some(without_read_concern(command.body));
            }
            fields.append(cstr!("readConcern"), along.snapshot.map(Snapshot::read_concern).unwrap_or_default());
        }
        (Some(own), Some(after)) if own.get("afterClusterTime").is_ok_and(|field| field.is_none()) => {
            *body = Some(without_read_concern(command.body));
            fields.append(cstr!("readConcern"), with_time(own, after));
        }
        (None, Some(after)) => {
            let none = RawDocumentBuf::new();
            fields.append(cstr!("readConcern"), with_time(default.unwrap_or(&none), after));
        }
        (None, None) => {
            if let Some(default) = default {
                fields.append(cstr!("readConcern"), default);
            }
        }
        (Some(_), _) => {}
    }
    let write_concern = along.defaults.and_then(|own| own.write_concern(command.body));
    // One that wants no reply takes no concern that asks for one.
    let goes_along = |concern: &&RawDocument| command.acknowledged || wants_no_reply(concern);
    if let Some(concern) = write_concern.filter(goes_along).filter(|_| !outline.has(ClientField::WriteConcern)) {
        fields.append(cstr!("writeConcern"), concern);
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

fn without_read_concern(body: &RawDocument) -> RawDocumentBuf {
    let mut rest = RawDocumentBuf::new();
    for (name, value) in body.iter().map_while(Result::ok).filter(|(name, _)| name.as_str() != "readConcern") {
        rest.append(name, value);
    }
    rest
}

/// Whether a command wants a reply, and its write concern is not `w: 0`.
pub(super) fn is_acknowledged(
    command: &Command<'_>,
    outline: &Outline<'_>,
    defaults: Option<&CommandDefaults>,
) -> bool {
    let concern = outline.write_concern.or_else(|| defaults?.write_concern(command.body));
    command.acknowledged && !concern.is_some_and(wants_no_reply)
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

/// A copy of `fields` with room for a session's id and the cluster's time, which come to most commands.
fn with_room(fields: Option<&RawDocument>) -> RawDocumentBuf {
    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
    const ROOM: usize = 256;
    let fields = fields.map_or(EMPTY, RawDocument::as_bytes);
    let mut bytes = Vec::with_capacity(fields.len() + ROOM);
    bytes.extend_from_slice(fields);
    RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
}
