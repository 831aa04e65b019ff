//! One established connection: one command, one reply (CMAP-8).
//!
//! Commands are appended to a buffer of the caller's, replies are lent out of the connection's own, so that a command
//! allocates nothing once both are warm. A reply that is not the answer to the last command breaks the connection.
//!
//! What large messages and compression need beyond that is [borrowed](crate::wire::BufferPool) for one use, by those who call
//! [`borrow_compressor`](Connection::borrow_compressor), [`read_borrowing`](Connection::read_borrowing) and
//! [`give_back`](Connection::give_back). Without them a connection allocates what it needs, and keeps it for its next use.

use alloc::vec::Vec;
use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use thiserror::Error;

use super::hello::Description;
use crate::error_text::readable_debug;
use crate::options::ServerApi;
use crate::wire::compression::is_compressible_command;
use crate::wire::{
    BufferPool, Compression, Compressor, Content, Decoder, EncodeError, Field, Flags, FrameReader, Lender, Limits,
    MessageIds, MessageWriter, Sequence, WireError, check_name, is_tls_alert,
};

/// An established connection, without its socket.
#[derive(Debug)]
pub struct Connection {
    frames: FrameReader,
    decoder: Decoder,
    /// How to compress, if that was agreed on.
    compression: Option<Compression>,
    /// Borrowed, or made for the first command that is compressed.
    compressor: Option<Compressor>,
    description: Description,
    /// The limits of what is read. Those of what is sent are in the description.
    reads: Limits,
    /// The fields of the server API, if one was declared, which go along with every command.
    server_api: Option<RawDocumentBuf>,
    last_request: i32,
    state: State,
}

/// A command to send.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Command<'a> {
    /// The database, sent as `$db`.
    pub database: &'a str,
    /// The command itself; it is never changed (MSG-10).
    pub body: &'a RawDocument,
    /// Further fields, such as `lsid` and `$readPreference`, sent behind the command's own. None may be there twice.
    pub fields: &'a [Field<'a>],
    /// Document sequences (MSG-2) of a message that is passed on. Whether their documents are too long is for the server to say.
    pub sequences: &'a [Sequence<'a>],
    /// Whether a reply is wanted. Without, the write is unacknowledged (MSG-7).
    pub acknowledged: bool,
    /// Whether the server may go on replying by itself: only for getMore and hello (MSG-9). Where it may not, a reply that
    /// announces another one breaks the connection.
    pub exhaust_allowed: bool,
    /// For how long the server may work at it, sent as `maxTimeMS` in whole milliseconds, and at least one, since the
    /// server reads zero as for ever. What is left of an operation's time, less a round trip (CSOT-9). The command must not
    /// have the field already.
    pub max_time: Option<Duration>,
}

/// The reply to a command.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The document, checked but not parsed.
    pub body: &'a RawDocument,
    /// Whether another reply follows without a request (MSG-8). Until the last one nothing may be sent.
    pub more_to_come: bool,
}

/// Why a command was not sent.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The reply to the last command has not been read yet.
    #[error("the connection waits for a reply: read it to the end first")]
    Busy,
    /// The connection broke before.
    #[error("the connection is broken: close it")]
    Errored,
    /// The command cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// What came is no reply to the last command. The connection is broken and must be closed.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// It is no message, or a malformed one.
    #[error("the server sent what is no message: {0}")]
    Wire(WireError),
    /// It is a record of TLS, from a server that expects TLS.
    #[error("the server speaks TLS at this port; set tls=true")]
    Tls,
    /// It is of another protocol that a port may be for.
    #[error("the server speaks {0} at this port, and not MongoDB's protocol; check host and port")]
    OtherProtocol(&'static str),
    /// It is a message, but no OP_MSG.
    #[error("the server answered in another protocol than it was asked in; is it older than MongoDB 4.2?")]
    NotOpMsg,
    /// It has document sequences, which only commands have (MSG-2).
    #[error("the server's reply has document sequences, which only commands have")]
    Sequences,
    /// It answers another request.
    #[error("the server answered request {found} instead of {expected}")]
    WrongRequest {
        /// The request that waits for an answer, or the reply before.
        expected: i32,
        /// The request that was answered.
        found: i32,
    },
    /// Nothing was asked.
    #[error("the server sent something though it was asked nothing")]
    Unasked,
    /// The reply announces another one, though the command did not allow that (MSG-9).
    #[error(
        "the server announced more replies (moreToCome), though the command did not allow them; is it a MongoDB server?"
    )]
    MoreToCome,
    /// The connection broke before.
    #[error("the connection is broken")]
    Errored,
}

readable_debug!(CommandError, ProtocolError);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Awaiting(Awaited),
    Errored,
}

/// The reply that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Awaited {
    /// The request that it answers, or the reply that it follows (MSG-8).
    response_to: i32,
    /// Whether another one may follow it (MSG-9).
    exhaust_allowed: bool,
}

impl Connection {
    /// A connection that is being greeted: it reads at most [`Limits::GREETING`].
    pub(crate) fn new(server_api: Option<ServerApi>) -> Self {
        Self {
            frames: FrameReader::new(),
            decoder: Decoder::of_replies(),
            compression: None,
            compressor: None,
            description: Description::default(),
            reads: Limits::GREETING,
            server_api: server_api.map(declaration),
            last_request: 0,
            state: State::Idle,
        }
    }

    /// What the server said of itself in its hello.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The number of the last message that was sent.
    pub fn last_request_id(&self) -> i32 {
        self.last_request
    }

    /// The fields by which every command declares the version of the server's API, if one does.
    pub fn api_declaration(&self) -> Option<&RawDocument> {
        self.server_api.as_deref()
    }

    /// Whether the connection can take a command.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Appends `command` to `out`, compressed if that was agreed on and is allowed (COMP-7).
    ///
    /// # Errors
    /// A reply is due, the connection is broken, the database has a NUL in its name, or the command is too long. Then
    /// nothing is appended.
    pub fn send(&mut self, out: &mut Vec<u8>, command: &Command<'_>) -> Result<(), CommandError> {
        self.send_with_sequences(out, command, core::iter::empty::<(&str, core::iter::Empty<&RawDocument>)>())
    }

    /// Appends `command` to `out` with document sequences: the field each belongs to, and its documents (MSG-2).
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn send_with_sequences<'d, S>(
        &mut self,
        out: &mut Vec<u8>,
        command: &Command<'_>,
        sequences: impl IntoIterator<Item = (&'d str, S)>,
    ) -> Result<(), CommandError>
    where
        S: IntoIterator<Item = &'d RawDocument>,
    {
        match self.state {
            State::Idle => {}
            State::Awaiting(_) => return Err(CommandError::Busy),
            State::Errored => return Err(CommandError::Errored),
        }
        check_name(command.database)?;
        let request = self.last_request.wrapping_add(1);
        let (start, limits) = (out.len(), self.description.limits);
        let flags = if command.acknowledged { Flags::NONE } else { Flags::MORE_TO_COME };
        let flags = if command.exhaust_allowed { flags.with(Flags::EXHAUST_ALLOWED) } else { flags };
        let database = Field::String("$db", command.database);
        let others = [self.server_api.as_deref().map(Field::All), command.max_time.map(max_time_field)];
        let (mut fields, mut count) = ([database; 3], 1);
        for (place, field) in fields.iter_mut().skip(1).zip(others.into_iter().flatten()) {
            *place = field;
            count += 1;
        }
        let fields = [&fields[..count], command.fields];
        let mut message =
            MessageWriter::begin_with(out, MessageIds::request(request), flags, command.body, fields, &limits)?;
        for sequence in command.sequences {
            message.pass_on(sequence)?;
        }
        for (identifier, documents) in sequences {
            message.sequence(identifier, documents)?;
        }
        message.finish();
        if let Err(error) = self.compress(out, start, &limits) {
            out.truncate(start);
            return Err(error.into());
        }
        self.last_request = request;
        if command.acknowledged {
            self.state = State::Awaiting(Awaited { response_to: request, exhaust_allowed: command.exhaust_allowed });
        }
        Ok(())
    }

    /// Takes bytes off the front of `input`, and returns the reply if it is whole. One that came in one piece stays
    /// where it is, in `input`.
    ///
    /// Bytes that are left in `input` behind the last reply were not asked for. Hand them in again before the next command:
    /// that breaks the connection. Otherwise they could be taken for that command's reply.
    ///
    /// # Errors
    /// What came is no reply to the last command, or nothing was asked. The connection is broken.
    pub fn read<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Result<Option<Reply<'r>>, ProtocolError> {
        self.read_borrowing(input, &mut BufferPool::none())
    }

    /// Takes bytes off the front of `input`, and returns the reply if it is whole. A large or a compressed reply is read into what
    /// `lender` lends. Once the reply was looked at, call [`give_back`](Self::give_back).
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_borrowing<'r, 'i: 'r>(
        &'r mut self,
        input: &mut &'i [u8],
        lender: &mut impl Lender,
    ) -> Result<Option<Reply<'r>>, ProtocolError> {
        let awaited = match self.state {
            State::Awaiting(awaited) => awaited,
            State::Idle if input.is_empty() => return Ok(None),
            State::Idle => {
                self.state = State::Errored;
                return Err(ProtocolError::Unasked);
            }
            State::Errored => return Err(ProtocolError::Errored),
        };
        // What comes in between is an error, and an error breaks the connection.
        self.state = State::Errored;
        let Some(frame) = self.frames.read_borrowing(input, &self.reads, lender)? else {
            self.state = State::Awaiting(awaited);
            return Ok(None);
        };
        let Content::Message(message) = self.decoder.decode_borrowing(frame, &self.reads, lender)?.content else {
            return Err(ProtocolError::NotOpMsg);
        };
        let ids = message.header.ids;
        if ids.response_to != awaited.response_to {
            return Err(ProtocolError::WrongRequest { expected: awaited.response_to, found: ids.response_to });
        }
        let more_to_come = message.more_to_come();
        self.state = match (more_to_come, awaited.exhaust_allowed) {
            (false, _) => State::Idle,
            (true, true) => State::Awaiting(Awaited { response_to: ids.request_id, ..awaited }),
            (true, false) => return Err(ProtocolError::MoreToCome),
        };
        Ok(Some(Reply { body: message.body, more_to_come }))
    }

    /// Borrows a compressor for the next command, if one was agreed on and `lender` has one.
    pub fn borrow_compressor(&mut self, lender: &mut impl Lender) {
        if let Some(compression) = self.compression
            && self.compressor.is_none()
        {
            self.compressor = lender.visit(|buffers| buffers.take_compressor(compression));
        }
    }

    /// Gives back what an idle connection needs not: the compressor, the decompressor, and buffers larger than
    /// [`KEPT`](crate::wire::KEPT), unless one holds a part of the next reply.
    #[inline]
    pub fn give_back(&mut self, lender: &mut impl Lender) {
        if let Some(compressor) = self.compressor.take() {
            drop(lender.visit(|buffers| buffers.put_compressor(compressor)));
        }
        self.frames.give_back(lender);
        self.decoder.give_back(lender);
    }

    /// Compresses the command that `out` holds from `start` to its end, if that was agreed on and is allowed (COMP-7).
    fn compress(&mut self, out: &mut Vec<u8>, start: usize, limits: &Limits) -> Result<(), EncodeError> {
        let Some(compression) = self.compression else { return Ok(()) };
        if !is_compressible_command(&out[start..]) {
            return Ok(());
        }
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => {
                let new = Compressor::new(compression).map_err(|_| EncodeError::Compressor(compression.id()))?;
                none.insert(new)
            }
        };
        compressor.compress_command(out, start, limits).map(drop)
    }

    /// Reads the greeting's reply from `bytes`. Looks whether the server answers the first message in TLS, or in
    /// another protocol.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub(crate) fn read_greeting<'r, 'i: 'r>(
        &'r mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Reply<'r>>, ProtocolError> {
        if self.last_request == 1 && self.frames.pending() == 0 && is_tls_alert(input) {
            self.state = State::Errored;
            return Err(ProtocolError::Tls);
        }
        let is_first = self.last_request == 1;
        self.read(input).map_err(|error| {
            if let ProtocolError::Wire(WireError::MessageTooLong { length, .. }) = &error
                && is_first
                && let Some(name) = other_protocol(*length)
            {
                return ProtocolError::OtherProtocol(name);
            }
            error
        })
    }

    pub(super) fn describe(&mut self, description: Description, compression: Option<Compression>) {
        self.description = description;
        self.compression = compression;
    }

    /// Ends the greeting: replies may be as long as [`Limits::DEFAULT`] allows. Of the greeting itself nothing is kept.
    pub(super) fn greeted(self) -> Self {
        Self { frames: FrameReader::new(), decoder: Decoder::of_replies(), reads: Limits::DEFAULT, ..self }
    }
}

/// The fields by which a command declares the version of the server's API.
fn declaration(api: ServerApi) -> RawDocumentBuf {
    let mut fields = RawDocumentBuf::new();
    fields.append(bson::cstr!("apiVersion"), api.version.as_str());
    if let Some(strict) = api.strict {
        fields.append(bson::cstr!("apiStrict"), strict);
    }
    if let Some(errors) = api.deprecation_errors {
        fields.append(bson::cstr!("apiDeprecationErrors"), errors);
    }
    fields
}

fn max_time_field(limit: Duration) -> Field<'static> {
    // The server takes no more than a 32-bit integer holds; nobody waits for 24 days.
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
    Field::Int64("maxTimeMS", millis.into())
}

impl<'a> Command<'a> {
    /// A command on `database` that wants a reply.
    pub fn new(database: &'a str, body: &'a RawDocument) -> Self {
        Self { database, body, fields: &[], sequences: &[], acknowledged: true, exhaust_allowed: false, max_time: None }
    }
}

impl From<WireError> for ProtocolError {
    fn from(error: WireError) -> Self {
        if error == WireError::Sequences { Self::Sequences } else { Self::Wire(error) }
    }
}

/// The protocol whose first four bytes were read as this length of a message.
fn other_protocol(length: usize) -> Option<&'static str> {
    const FIRST_BYTES: [([u8; 4], &str); 5] = [
        (*b"HTTP", "HTTP"),
        (*b"SSH-", "SSH"),
        (*b"-ERR", "Redis' protocol"),
        (*b"-NOA", "Redis' protocol"),
        (*b"220 ", "SMTP or FTP"),
    ];
    let read = u32::try_from(length).ok()?.to_le_bytes();
    FIRST_BYTES.into_iter().find(|(bytes, _)| *bytes == read).map(|(_, name)| name)
}
