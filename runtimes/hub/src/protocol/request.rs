//! A command as it came from the client.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use bson::raw::CStr;
use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Command, Outline};
use cmap_core::options::{ReadMode, ReadPreference};
use cmap_core::retry::Retryability;
use cmap_core::time::Instant;
use cmap_core::topology::ServerSelector;
use cmap_core::wire::compression::is_compressible;
use cmap_core::wire::{
    CompressorId, Flags, HEADER_LEN, Header, Limits, Message, OpCode, Query, Sequence, WireError, integer,
};
use thiserror::Error;

use super::names::is_plain;
use super::read_preference::read_preference;
use super::reading::fields;
use super::refusal::Refusal;

/// The id of a logical session.
pub type SessionId = [u8; 16];

/// A command of a client, with the bytes it came in.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its document.
    pub(super) body: RawDocumentBuf,
    /// The message, where it has document sequences.
    pub(super) frame: Option<Arc<[u8]>>,
    /// Whether it came as OP_QUERY, and is to be answered by OP_REPLY.
    pub(super) is_query: bool,
    /// The number of the message.
    pub(super) id: i32,
    /// What it was compressed by, and its reply is to be.
    pub(super) compressor: Option<CompressorId>,
    /// Whether a reply is wanted.
    pub acknowledged: bool,
    /// `$db`.
    pub database: String,
    /// The command's name.
    pub name: String,
    /// The session that it names.
    pub session: Option<SessionId>,
    /// `txnNumber`.
    pub number: Option<i64>,
    /// Its part in a transaction.
    pub part: Option<Part>,
    /// `maxTimeMS`, unless it is zero.
    pub max_time: Option<Duration>,
    /// The server that it wants, by `$readPreference`.
    preference: Option<ReadPreference>,
    /// Whether it may have nothing that is not part of the stable API.
    pub(super) api_strict: bool,
    /// When it came.
    pub arrived: Instant,
}

/// The part of a command in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first one.
    Starts,
    /// One of the others.
    Continues,
    /// `commitTransaction` or `abortTransaction`.
    Ends,
}

/// A command that may be run upstream.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The command.
    pub request: Arc<Request>,
    /// Where.
    pub route: Route,
    /// Whether it goes before others, because it lets go of what they may wait for.
    pub class: super::Class,
    /// What is sent in place of the client's document.
    pub body: Option<RawDocumentBuf>,
    /// The identity upstream of the user for whom the rules have allowed it, by its name in the configuration; `None` is the hub's own.
    /// It does not change when the users do: a user that was removed meanwhile would become the hub.
    pub upstream: Option<Arc<str>>,
    /// Whether its session is being killed, for what another connection has left there: it runs when that is done.
    pub session_ends: bool,
}

/// Where a command goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To a server that suits.
    Select(ServerSelector),
    /// To the server of a cursor or a transaction.
    Server(Arc<ServerAddress>),
}

/// What came is no command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// It is no message, or one that the hub does not take: the connection ends.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// It is compressed, though that was not agreed on, or before the login.
    #[error("the client compresses by what was not agreed on, or before its login")]
    Compressed,
    /// It is a message of another kind than commands have.
    #[error("the client sent a message that is no command")]
    NoCommand,
    /// It is a command that says something that cannot be: it is answered.
    #[error("{}", .0.refusal.message)]
    Refused(Box<Refused>),
}

/// A command that is answered by an error, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub(super) is_query: bool,
    pub(super) id: i32,
    pub(super) acknowledged: bool,
    pub(super) refusal: Refusal,
}

/// How many fields of one level a command may have: the longest has some dozens. Those of a filter or of what is written are deeper.
const MOST_FIELDS: usize = 1_000;

/// How a message is answered.
#[derive(Clone, Copy)]
struct Answer {
    is_query: bool,
    id: i32,
    acknowledged: bool,
}

/// A message whose documents were checked, their texts at every depth included.
enum Checked<'a> {
    Message(Message<'a>),
    Query { database: &'a str, body: &'a RawDocument },
}

impl Request {
    /// Reads a whole message.
    ///
    /// # Errors
    /// It is no command, or one that cannot be: such as one with a text that is not UTF-8, at any depth. By whatever part of a
    /// command something is decided, that part can be read.
    pub fn read(frame: &[u8], limits: &Limits, arrived: Instant) -> Result<Self, Fault> {
        let (header, _) = Header::split(frame, limits)?;
        let answer = Answer::to(&header, frame);
        let checked = match Checked::open(&header, frame, limits) {
            Err(Fault::Wire(error)) if is_of_content(&error) => {
                return Err(answer.refused(Refusal::invalid_bson(&error)));
            }
            checked => checked?,
        };
        let refused = |message: &'static str| answer.refused(Refusal::new(9, "FailedToParse", message));
        let (database, body) = match &checked {
            Checked::Message(message) => ("", message.body),
            Checked::Query { database, body } => (*database, *body),
        };
        let Answer { is_query, id, acknowledged } = answer;
        let mut request = Self {
            body: body.to_owned(),
            frame: None,
            is_query,
            id,
            compressor: None,
            acknowledged,
            database: database.into(),
            name: String::new(),
            session: None,
            number: None,
            part: None,
            max_time: None,
            preference: None,
            api_strict: false,
            arrived,
        };
        let (mut starts, mut autocommit) = (None, None);
        let mut seen = BTreeSet::new();
        for element in body.iter() {
            let (key, value) = element.map_err(|error| answer.refused(Refusal::invalid_bson(&error)))?;
            if seen.len() >= MOST_FIELDS {
                return Err(refused("the command has more than a thousand fields"));
            }
            // The hub and the server could each believe another one of the two.
            if !seen.insert(key.as_str()) {
                return Err(refused("a field of the command is there twice"));
            }
            if request.name.is_empty() {
                if !is_plain(key.as_str()) {
                    return Err(refused("the command's name is longer than 255 bytes, or has control characters"));
                }
                if !is_named_by_text(key.as_str(), value).map_err(|refusal| answer.refused(refusal))? {
                    return Err(refused("a collection is named by a string here, and not by its UUID"));
                }
                request.name = key.as_str().into();
            }
            match key.as_str() {
                "$db" => request.database = value.as_str().ok_or_else(|| refused("$db is no string"))?.into(),
                "lsid" => request.session = Some(session_id(value).ok_or_else(|| refused(BAD_SESSION))?),
                "txnNumber" => {
                    request.number = Some(integer(value).ok_or_else(|| refused("txnNumber is no whole number"))?);
                }
                "startTransaction" => {
                    starts = Some(value.as_bool().ok_or_else(|| refused("startTransaction is no boolean"))?);
                }
                "autocommit" => {
                    autocommit = Some(value.as_bool().ok_or_else(|| refused("autocommit is no boolean"))?);
                }
                "maxTimeMS" => request.max_time = positive_millis(value),
                "apiStrict" => request.api_strict = value.as_bool().unwrap_or_default(),
                "$readPreference" => {
                    request.preference = read_preference(value).map_err(refused)?;
                }
                _ => {}
            }
        }
        if request.name.is_empty() {
            return Err(refused("the command is empty"));
        }
        if request.database.is_empty() {
            return Err(refused("OP_MSG requests require a $db argument"));
        }
        if !is_plain(&request.database) {
            return Err(refused("the database's name is longer than 255 bytes, or has control characters"));
        }
        if let Checked::Message(message) = &checked
            && message.has_sequences()
        {
            if message.sequences().any(|sequence| !may_have(&request.name, sequence.identifier)) {
                return Err(refused(
                    "the command has a document sequence that drivers do not send; put it into its document",
                ));
            }
            if message.sequences().any(|sequence| !seen.insert(sequence.identifier)) {
                return Err(refused(
                    "a document sequence of the command is there twice, or is a field of its document, too",
                ));
            }
            request.frame = Some(frame.into());
        }
        if autocommit == Some(false) {
            request.part = Some(match (request.name.as_str(), starts) {
                ("commitTransaction" | "abortTransaction", _) => Part::Ends,
                (_, Some(true)) => Part::Starts,
                _ => Part::Continues,
            });
            if request.session.is_none() || request.number.is_none() {
                return Err(refused("a command of a transaction needs an lsid and a txnNumber"));
            }
        }
        Ok(request)
    }

    /// How many bytes it takes while it waits.
    pub fn size(&self) -> usize {
        self.body.as_bytes().len() + self.frame.as_ref().map_or(0, |frame| frame.len())
    }

    /// Its document sequences.
    ///
    /// # Errors
    /// They cannot be read, which [`read`](Self::read) has ruled out.
    pub fn sequences(&self) -> Result<Vec<Sequence<'_>>, Refusal> {
        let Some(frame) = &self.frame else { return Ok(Vec::new()) };
        let message = Message::decode(frame, &Limits::DEFAULT).map_err(|error| Refusal::invalid_bson(&error))?;
        Ok(message.sequences().collect())
    }

    /// The collection that it names, if it names one.
    pub fn collection(&self) -> Option<&str> {
        let named = if self.name == "getMore" { "collection" } else { &self.name };
        self.body().get_str(named).ok()
    }

    /// The command's document.
    pub fn body(&self) -> &RawDocument {
        &self.body
    }

    /// The request, noted as one that came compressed. Commands that hold credentials must not (COMP-7).
    pub(super) fn compressed_by(self, compressor: CompressorId) -> Result<Self, Fault> {
        if is_compressible(&self.name) {
            return Ok(Self { compressor: Some(compressor), ..self });
        }
        let Self { is_query, id, acknowledged, .. } = self;
        let message = "a command that holds credentials must not be compressed; send it as it is";
        Err(Answer { is_query, id, acknowledged }.refused(Refusal::new(9, "FailedToParse", message)))
    }

    /// The fields of its document. None is left out: [`read`](Self::read) has met them all.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&CStr, RawBsonRef<'_>)> {
        self.body.iter().filter_map(Result::ok)
    }

    /// Whether it is a write that the driver has numbered, or the end of a transaction.
    pub(super) fn is_retryable_write(&self) -> bool {
        match self.part {
            Some(part) => part == Part::Ends,
            None => self.number.is_some(),
        }
    }

    /// Whether drivers repeat it by themselves after an error that says that it may be: a write that is numbered, or a read.
    pub(super) fn is_repeated_by_drivers(&self) -> bool {
        let outline =
            || Retryability::of_command(&Outline::of(&Command::new(&self.database, &self.body)), self.acknowledged);
        self.part.is_none() && (self.number.is_some() || outline() == Retryability::Read)
    }

    /// Whether it only ends something, so that its reply is short.
    pub(crate) fn only_lets_go(&self) -> bool {
        self.part == Some(Part::Ends) || matches!(&*self.name, "killCursors" | "endSessions" | "killSessions")
    }

    /// The servers that suit, by the read preference that it names.
    pub(super) fn selector(&self) -> ServerSelector {
        match &self.preference {
            Some(preference) if preference.mode() != ReadMode::Primary => preference.clone().into(),
            Some(_) | None => ServerSelector::Writable,
        }
    }
}

/// Whether the rules can tell which collection a command means: a UUID, and what servers take for a string, hide it.
fn is_named_by_text(name: &str, value: RawBsonRef<'_>) -> Result<bool, Refusal> {
    if let RawBsonRef::Document(inner) = value
        && name == "explain"
        && let Some(first) = fields(inner).next()
    {
        let (inner_name, value) = first?;
        return is_named_by_text(inner_name, value);
    }
    Ok(!matches!(value, RawBsonRef::Binary(_) | RawBsonRef::Symbol(_)))
}

/// Whether a command has this document sequence. A server puts any sequence into the command, `pipeline` for one, past the rules.
fn may_have(command: &str, sequence: &str) -> bool {
    matches!(
        (command, sequence),
        ("insert", "documents") | ("update", "updates") | ("delete", "deletes") | ("bulkWrite", "ops" | "nsInfo")
    )
}

const BAD_SESSION: &str = "lsid is no document with a UUID of 16 bytes as its only field, `id`";

impl Answer {
    /// To this message, which need not be well-formed behind its header.
    fn to(header: &Header, frame: &[u8]) -> Self {
        let flags =
            frame.get(HEADER_LEN..).and_then(|rest| rest.first_chunk()).map_or(0, |bits| u32::from_le_bytes(*bits));
        let is_query = header.op_code == OpCode::Query;
        let is_unacknowledged = !is_query && flags & Flags::MORE_TO_COME.bits() != 0;
        Self { is_query, id: header.ids.request_id, acknowledged: !is_unacknowledged }
    }

    fn refused(self, refusal: Refusal) -> Fault {
        let Self { is_query, id, acknowledged } = self;
        Fault::Refused(Box::new(Refused { is_query, id, acknowledged, refusal }))
    }
}

impl<'a> Checked<'a> {
    fn open(header: &Header, frame: &'a [u8], limits: &Limits) -> Result<Self, Fault> {
        match header.op_code {
            OpCode::Msg => Ok(Self::Message(Message::decode_utf8(frame, limits)?)),
            OpCode::Query => {
                let query = Query::decode_utf8(frame, limits)?;
                let database = query.command_database().ok_or(Fault::NoCommand)?;
                Ok(Self::Query { database, body: query.query })
            }
            OpCode::Compressed => Err(Fault::Compressed),
            OpCode::Reply => Err(Fault::NoCommand),
        }
    }
}

/// Whether an error is one of a document or a name in the message: where the next message begins is known all the same.
fn is_of_content(error: &WireError) -> bool {
    matches!(error, WireError::Document(_) | WireError::DocumentTooShort { .. } | WireError::InvalidText { .. })
}

/// The id in an `lsid`. One with further fields, which name another user or an internal session, is none.
pub(super) fn session_id(value: RawBsonRef<'_>) -> Option<SessionId> {
    let mut fields = value.as_document()?.iter();
    let (key, id) = fields.next()?.ok()?;
    let id = id.as_binary().filter(|id| key.as_str() == "id" && id.subtype == BinarySubtype::Uuid)?;
    if fields.next().is_some() { None } else { id.bytes.try_into().ok() }
}

/// The document of a session's id.
pub(crate) fn session_document(id: &SessionId) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("id"), bson::RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: id });
    document
}

fn positive_millis(value: RawBsonRef<'_>) -> Option<Duration> {
    let millis = u64::try_from(integer(value)?).ok()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use cmap_core::wire::{Flags, MessageIds, MessageWriter};

    use super::*;

    fn message(body: &RawDocument) -> Vec<u8> {
        let mut out = Vec::new();
        MessageWriter::begin(&mut out, MessageIds::request(7), Flags::NONE, body, &[], &Limits::DEFAULT)
            .unwrap()
            .finish();
        out
    }

    fn read(body: &RawDocument) -> Result<Request, Fault> {
        Request::read(&message(body), &Limits::DEFAULT, Instant::ORIGIN)
    }

    #[test]
    fn a_command_goes_on_without_its_database_and_with_what_is_left_of_its_time_x_131() {
        let request = read(&rawdoc! { "find": "c", "maxTimeMS": 500, "$db": "shop" }).unwrap();

        assert_eq!((request.name.as_str(), request.database.as_str()), ("find", "shop"));
        assert_eq!(request.max_time, Some(Duration::from_millis(500)));
        assert_eq!(request.compose(Some(Duration::from_millis(20))), rawdoc! { "find": "c", "maxTimeMS": 20_i64 });
        assert_eq!(request.compose(Some(Duration::ZERO)), rawdoc! { "find": "c", "maxTimeMS": 1_i64 });
    }

    #[test]
    fn the_read_preference_selects_the_server() {
        let secondary = rawdoc! {
            "find": "c", "$db": "d", "$readPreference": { "mode": "secondary", "tags": [{ "dc": "ny" }, {}] },
        };

        assert_eq!(
            read(&secondary).unwrap().selector().to_string(),
            "reads (mode secondary, tag sets [{\"dc\": \"ny\"}, {}])"
        );
        assert_eq!(read(&rawdoc! { "find": "c", "$db": "d" }).unwrap().selector(), ServerSelector::Writable);
        assert!(read(&rawdoc! { "find": "c", "$db": "d", "$readPreference": { "mode": "any" } }).is_err());
    }

    #[test]
    fn a_read_preference_that_cannot_be_read_selects_no_other_server() {
        for (field, value) in [
            ("tags", bson::bson!([{ "dc": 5 }])),
            ("tags", bson::bson!([{ "dc": "ny" }, "any"])),
            ("tags", bson::bson!({ "dc": "ny" })),
            ("maxStalenessSeconds", bson::bson!("90")),
        ] {
            let mut preference = bson::doc! { "mode": "secondary" };
            preference.insert(field, value);
            let preference = RawDocumentBuf::try_from(&preference).unwrap();
            let find = rawdoc! { "find": "c", "$db": "d", "$readPreference": preference };
            assert!(matches!(read(&find), Err(Fault::Refused(_))), "{find:?}");
        }
    }

    #[test]
    fn a_session_that_names_a_user_is_refused() {
        let id = session_document(&[7; 16]);
        let mut foreign = id.clone();
        foreign.append(cstr!("uid"), bson::RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &[1; 32] });
        let with = |lsid: &RawDocument| read(&rawdoc! { "ping": 1, "$db": "admin", "lsid": lsid.to_owned() });

        assert_eq!(with(&id).unwrap().session, Some([7; 16]));
        assert!(with(&foreign).is_err());
    }

    #[test]
    fn the_part_in_a_transaction_is_seen() {
        let lsid = session_document(&[7; 16]);
        let part = |name: &str, starts: bool| {
            let mut body = RawDocumentBuf::new();
            body.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
            body.append(cstr!("lsid"), &lsid);
            body.append(cstr!("txnNumber"), 1_i64);
            body.append(cstr!("autocommit"), false);
            if starts {
                body.append(cstr!("startTransaction"), true);
            }
            body.append(cstr!("$db"), "d");
            read(&body).unwrap().part
        };

        assert_eq!(part("find", true), Some(Part::Starts));
        assert_eq!(part("find", false), Some(Part::Continues));
        assert_eq!(part("commitTransaction", false), Some(Part::Ends));
        assert!(read(&rawdoc! { "find": "c", "autocommit": false, "$db": "d" }).is_err(), "without a session");
        assert!(
            read(&rawdoc! { "find": "c", "autocommit": 0, "$db": "d" }).is_err(),
            "a server could take it for false"
        );
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_x_133() {
        for twice in [
            rawdoc! { "find": "c", "$db": "d", "find": "secret" },
            rawdoc! { "find": "c", "$db": "d", "lsid": session_document(&[1; 16]), "lsid": session_document(&[2; 16]) },
        ] {
            assert!(matches!(read(&twice), Err(Fault::Refused(_))), "{twice:?}");
        }
    }

    #[test]
    fn a_command_has_a_thousand_fields_at_most() {
        let with = |count: usize| {
            let mut body = rawdoc! { "ping": 1, "$db": "admin" };
            for number in 2..count {
                body.append(bson::raw::CString::try_from(number.to_string()).unwrap(), bson::RawBson::Null);
            }
            read(&body)
        };

        assert!(with(1_000).is_ok());
        assert!(matches!(with(1_001), Err(Fault::Refused(_))));
    }

    #[test]
    fn a_collection_that_is_named_by_no_string_is_refused_x_133() {
        let uuid = || bson::Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
        for hidden in [
            rawdoc! { "find": uuid(), "$db": "d" },
            rawdoc! { "explain": { "find": uuid() }, "$db": "d" },
            rawdoc! { "find": bson::RawBson::Symbol("secret".into()), "$db": "d" },
        ] {
            assert!(matches!(read(&hidden), Err(Fault::Refused(_))), "{hidden:?}");
        }
    }

    #[test]
    fn a_document_sequence_is_one_that_its_command_has_x_133() {
        let with = |body: &RawDocument, name: &str| {
            let stages = [rawdoc! { "$out": "secret" }];
            let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
            let (mut out, fields) = (Vec::new(), [cmap_core::wire::Field::String("$db", "d")]);
            let mut message =
                MessageWriter::begin(&mut out, MessageIds::request(7), Flags::NONE, body, &fields, &Limits::DEFAULT)
                    .unwrap();
            message.sequence(name, stages).unwrap();
            message.finish();
            Request::read(&out, &Limits::DEFAULT, Instant::ORIGIN)
        };

        assert!(with(&rawdoc! { "insert": "c" }, "documents").is_ok());
        assert!(with(&rawdoc! { "aggregate": "c", "cursor": {} }, "pipeline").is_err());
        assert!(with(&rawdoc! { "insert": "c" }, "insert").is_err());
    }

    #[test]
    fn a_name_that_a_log_cannot_show_is_refused() {
        assert!(read(&rawdoc! { "ping": 1, "$db": "d".repeat(256) }).is_err());
        assert!(read(&rawdoc! { "pi\nng": 1, "$db": "d" }).is_err());
    }

    #[test]
    fn what_is_no_command_ends_the_connection() {
        let mut compressed = message(&rawdoc! { "ping": 1, "$db": "admin" });
        compressed[12..16].copy_from_slice(&2012_i32.to_le_bytes());
        assert_eq!(Request::read(&compressed, &Limits::DEFAULT, Instant::ORIGIN).unwrap_err(), Fault::Compressed);
        compressed[12..16].copy_from_slice(&1_i32.to_le_bytes());
        assert_eq!(Request::read(&compressed, &Limits::DEFAULT, Instant::ORIGIN).unwrap_err(), Fault::NoCommand);
    }
}
