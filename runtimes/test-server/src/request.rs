//! A request out of a message: the command, its arguments, and how it wants to be answered.
//!
//! The three forms of a command (OP_QUERY, OP_MSG, either of them compressed) end here. Document sequences become
//! arrays in the body, as if the client had sent them so, so that no command needs to know of them.

use std::borrow::Cow;

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use cmap_core::wire::document::command_name;
use cmap_core::wire::{CompressorId, Content, Flags, Incoming, Message, integer};

use super::failure::fail;
use crate::store::CommandFailure;

/// An incoming command.
pub(super) struct Request<'a> {
    /// The command's name: its first field.
    pub(super) name: &'a str,
    /// The database, `$db`.
    pub(super) database: &'a str,
    /// The whole body of the command.
    pub(super) arguments: Arguments<'a>,
    /// How it is answered.
    pub(super) answer: AnswerForm,
}

/// How a request wants to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerForm {
    /// The kind of message.
    pub(super) kind: AnswerKind,
    /// The number of the message that is answered.
    pub(super) response_to: i32,
    /// What the request was compressed with.
    pub(super) compressor: Option<CompressorId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// An OP_REPLY (SRV-1).
    Reply,
    /// One OP_MSG, with a checksum if the request had one.
    Message { checksum: bool },
    /// One OP_MSG or several (MSG-9).
    Messages { checksum: bool },
    /// No reply (SRV-4).
    Silence,
}

/// A message before its command is read: the body, with sequences merged into it.
pub(super) struct Body<'a> {
    document: Cow<'a, RawDocument>,
    form: AnswerForm,
    /// The database that an OP_QUERY names.
    query: Option<&'a str>,
}

impl<'a> Body<'a> {
    /// The body of `incoming`, unless it is a reply.
    pub(super) fn of(incoming: &Incoming<'a>) -> Option<Result<Self, (AnswerForm, CommandFailure)>> {
        let form = |kind| AnswerForm {
            kind,
            response_to: incoming.content.header().ids.request_id,
            compressor: incoming.compressor,
        };
        match &incoming.content {
            Content::Reply(_) => None,
            Content::Query(query) => {
                let form = form(AnswerKind::Reply);
                Some(Ok(Self { document: Cow::Borrowed(query.query), form, query: Some(query.collection) }))
            }
            Content::Message(message) => {
                let checksum = message.flags.contains(Flags::CHECKSUM_PRESENT);
                let form = form(match message {
                    _ if message.more_to_come() => AnswerKind::Silence,
                    _ if message.exhaust_allowed() => AnswerKind::Messages { checksum },
                    _ => AnswerKind::Message { checksum },
                });
                let merged = merge_sequences(message).map_err(|failure| (form, failure));
                Some(merged.map(|document| Self { document, form, query: None }))
            }
        }
    }

    pub(super) fn form(&self) -> AnswerForm {
        self.form
    }

    /// The command in the body.
    pub(super) fn request(&self) -> Result<Request<'_>, CommandFailure> {
        let arguments = Arguments(&self.document);
        let Some(name) = command_name(&self.document) else {
            return Err(fail(59, "no such command: ''"));
        };
        let database = match self.query {
            Some(collection) => query_database(collection, name)?,
            None => arguments.text("$db")?.ok_or_else(|| fail(40571, "OP_MSG requests require a $db argument"))?,
        };
        if !is_database_name(database) {
            return Err(fail(73, format!("Invalid database name: '{database}'")));
        }
        Ok(Request { name, database, arguments, answer: self.form })
    }
}

impl Request<'_> {
    /// Whether it is a hello by any of its names (SRV-1).
    pub(super) fn is_hello(&self) -> bool {
        is_hello(self.name)
    }
}

pub(super) fn is_hello(command: &str) -> bool {
    matches!(command, "hello" | "isMaster" | "ismaster")
}

/// Only a hello may still come as an OP_QUERY (SRV-1).
fn query_database<'a>(collection: &'a str, command: &str) -> Result<&'a str, CommandFailure> {
    let Some(database) = collection.strip_suffix(".$cmd") else {
        return Err(fail(5_739_101, "OP_QUERY is no longer supported. The client driver may require an upgrade."));
    };
    if !is_hello(command) {
        let message = format!("Unsupported OP_QUERY command: {command}. The client driver may require an upgrade.");
        return Err(fail(352, message));
    }
    Ok(database)
}

fn is_database_name(name: &str) -> bool {
    !name.is_empty() && name.len() < 64 && !name.contains(['/', '\\', '.', ' ', '"', '\0'])
}

fn merge_sequences<'a>(message: &Message<'a>) -> Result<Cow<'a, RawDocument>, CommandFailure> {
    let mut sequences = message.sequences().peekable();
    if sequences.peek().is_none() {
        return Ok(Cow::Borrowed(message.body));
    }
    let mut merged = message.body.to_owned();
    for sequence in sequences {
        let identifier = sequence.identifier;
        if message.body.get(identifier).is_ok_and(|field| field.is_some()) {
            return Err(fail(40433, format!("Duplicate field between body and document sequence {identifier}")));
        }
        let mut array = RawArrayBuf::new();
        sequence.documents().for_each(|document| array.push(document));
        append(&mut merged, identifier, &*array);
    }
    Ok(Cow::Owned(merged))
}

/// Appends a field whose name may contain a NUL; such a field is left out.
pub(super) fn append(document: &mut RawDocumentBuf, name: &str, value: impl bson::raw::BindRawBsonRef) {
    if let Ok(name) = <&bson::raw::CStr>::try_from(name) {
        document.append(name, value);
    }
}

/// The fields of a command or of a document in it, by the types they must have.
///
/// A field that is missing or null is `None`; numbers may have any numeric type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a>(pub(super) &'a RawDocument);

impl<'a> Arguments<'a> {
    pub(super) fn get(self, name: &str) -> Option<RawBsonRef<'a>> {
        self.0.get(name).ok().flatten().filter(|value| value.as_null().is_none())
    }

    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, CommandFailure> {
        self.typed(name, "string", RawBsonRef::as_str)
    }

    pub(super) fn integer(self, name: &str) -> Result<Option<i64>, CommandFailure> {
        self.typed(name, "number", integer)
    }

    /// Whether the flag is set, in any type that has a truth value.
    pub(super) fn flag(self, name: &str) -> bool {
        self.get(name).is_some_and(is_true)
    }

    pub(super) fn document(self, name: &str) -> Result<Option<Arguments<'a>>, CommandFailure> {
        self.typed(name, "object", |value| value.as_document().map(Arguments))
    }

    pub(super) fn array(self, name: &str) -> Result<Option<&'a RawArray>, CommandFailure> {
        self.typed(name, "array", RawBsonRef::as_array)
    }

    pub(super) fn binary(self, name: &str) -> Result<Option<&'a [u8]>, CommandFailure> {
        self.typed(name, "binData", |value| value.as_binary().map(|binary| binary.bytes))
    }

    /// The texts of an array.
    pub(super) fn texts(self, name: &str) -> Result<Option<impl Iterator<Item = &'a str> + use<'a>>, CommandFailure> {
        let array = self.array(name)?;
        Ok(array.map(|array| array.into_iter().filter_map(|item| item.ok()?.as_str())))
    }

    fn typed<T>(
        self,
        name: &str,
        expected: &str,
        read: impl FnOnce(RawBsonRef<'a>) -> Option<T>,
    ) -> Result<Option<T>, CommandFailure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => {
                let found = value.element_type();
                let message = format!("BSON field '{name}' is the wrong type '{found:?}', expected type '{expected}'");
                Err(fail(14, message))
            }
        }
    }

    /// The names of the fields.
    pub(super) fn names(self) -> impl Iterator<Item = String> + use<'a> {
        self.0.iter_elements().map_while(Result::ok).map(|element| element.key().as_str().into())
    }
}

/// Truth, as the server understands it.
fn is_true(value: RawBsonRef<'_>) -> bool {
    value.as_bool().unwrap_or_else(|| {
        integer(value).is_some_and(|number| number != 0) || value.as_f64().is_some_and(|number| number != 0.0)
    })
}
