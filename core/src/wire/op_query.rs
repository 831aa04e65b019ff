//! OP_QUERY and OP_REPLY: the remains of the protocol before OP_MSG.
//!
//! Our client never sends OP_QUERY (HS-2, MSG-1). A server must still understand it, because several drivers send the
//! first hello in this form, before they know the server (SRV-1), and it is answered by OP_REPLY. The reverse
//! directions are here for tests, and for peers of other servers.
//!
//! ```text
//! OP_QUERY: header | flags i32 | collection \0 | skip i32 | number i32 | query | fields, perhaps
//! OP_REPLY: header | flags i32 | cursor i64 | startingFrom i32 | number i32 | document ...
//! ```

use alloc::vec::Vec;

use bson::RawDocument;

use super::error::{EncodeError, WireError};
use super::field::{append_c_string, check_name};
use super::header::{HEADER_LEN, Header, MessageIds, OpCode, patch_length};
use super::limits::Limits;
use super::op_msg::Documents;

/// A whole, valid OP_QUERY.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The header.
    pub header: Header,
    /// The flags, as they are: none changes how the message is read.
    pub flags: i32,
    /// The collection; `admin.$cmd` for a command on the database admin.
    pub collection: &'a str,
    /// How many documents to skip.
    pub skip: i32,
    /// How many documents to return; -1 or 1 for a command.
    pub number: i32,
    /// The query; the command if the collection is `$cmd`.
    pub query: &'a RawDocument,
    /// Which fields to return.
    pub fields: Option<&'a RawDocument>,
}

/// A whole, valid OP_REPLY.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The header.
    pub header: Header,
    /// The flags, as they are: none changes how the message is read.
    pub flags: i32,
    /// The cursor; 0 for a command.
    pub cursor: i64,
    /// How many documents came before these.
    pub starting_from: i32,
    documents: &'a [u8],
}

impl<'a> Query<'a> {
    /// Reads one whole message.
    pub fn decode(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        Self::read::<false>(message, limits)
    }

    /// Like [`decode`](Self::decode), and every string of its documents has to be UTF-8.
    pub fn decode_utf8(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        Self::read::<true>(message, limits)
    }

    fn read<const UTF8: bool>(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        let (header, mut cursor) = Header::split_of(OpCode::Query, message, limits)?;
        let flags = cursor.i32("the flags of an OP_QUERY")?;
        let collection = cursor.c_string("an OP_QUERY's collection")?;
        let skip = cursor.i32("numberToSkip")?;
        let number = cursor.i32("numberToReturn")?;
        let query = cursor.document::<UTF8>(limits.document())?;
        let fields = if cursor.is_empty() { None } else { Some(cursor.document::<UTF8>(limits.document())?) };
        cursor.end("an OP_QUERY")?;
        Ok(Self { header, flags, collection, skip, number, query, fields })
    }

    /// The database, if the query is a command.
    pub fn command_database(&self) -> Option<&'a str> {
        self.collection.strip_suffix(".$cmd")
    }
}

impl<'a> Reply<'a> {
    /// Reads one whole message.
    pub fn decode(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        let (header, mut cursor) = Header::split_of(OpCode::Reply, message, limits)?;
        let flags = cursor.i32("the flags of an OP_REPLY")?;
        let id = cursor.i64("cursorID")?;
        let starting_from = cursor.i32("startingFrom")?;
        let announced = cursor.i32("numberReturned")?;
        let documents = cursor.rest();
        let mut found = 0;
        while !cursor.is_empty() {
            cursor.document::<false>(limits.document())?;
            found += 1;
        }
        if usize::try_from(announced) != Ok(found) {
            return Err(WireError::DocumentCount { announced, found });
        }
        Ok(Self { header, flags, cursor: id, starting_from, documents })
    }

    /// The documents.
    pub fn documents(&self) -> Documents<'a> {
        Documents { rest: self.documents }
    }
}

/// Appends the OP_REPLY that answers a command by `body` (SRV-1), and returns its length.
pub fn encode_reply(
    out: &mut Vec<u8>,
    ids: MessageIds,
    body: &RawDocument,
    limits: &Limits,
) -> Result<usize, EncodeError> {
    append(out, ids, OpCode::Reply, limits, |out| {
        // Flags: bit 3, AwaitCapable, which every server sets.
        out.extend_from_slice(&8_i32.to_le_bytes());
        out.extend_from_slice(&0_i64.to_le_bytes());
        out.extend_from_slice(&0_i32.to_le_bytes());
        out.extend_from_slice(&1_i32.to_le_bytes());
        append_document(out, body, limits)
    })
}

/// Appends an OP_QUERY that runs `command` on `database`, and returns its length.
pub fn encode_query(
    out: &mut Vec<u8>,
    ids: MessageIds,
    database: &str,
    command: &RawDocument,
    limits: &Limits,
) -> Result<usize, EncodeError> {
    append(out, ids, OpCode::Query, limits, |out| {
        out.extend_from_slice(&0_i32.to_le_bytes());
        check_name(database)?;
        out.extend_from_slice(database.as_bytes());
        append_c_string(out, ".$cmd")?;
        out.extend_from_slice(&0_i32.to_le_bytes());
        out.extend_from_slice(&(-1_i32).to_le_bytes());
        append_document(out, command, limits)
    })
}

fn append_document(out: &mut Vec<u8>, document: &RawDocument, limits: &Limits) -> Result<(), EncodeError> {
    let (length, max) = (document.as_bytes().len(), limits.document());
    if length > max {
        return Err(EncodeError::DocumentTooLong { length, max });
    }
    out.extend_from_slice(document.as_bytes());
    Ok(())
}

/// Appends a whole message or, after an error, nothing.
fn append(
    out: &mut Vec<u8>,
    ids: MessageIds,
    op_code: OpCode,
    limits: &Limits,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let start = out.len();
    out.extend_from_slice(&Header { length: HEADER_LEN, ids, op_code }.encode());
    let result = content(out).and_then(|()| {
        let (length, max) = (out.len() - start, limits.message());
        if length > max { Err(EncodeError::MessageTooLong { length, max }) } else { Ok(length) }
    });
    match result {
        Ok(length) => patch_length(out, start, length),
        Err(_) => out.truncate(start),
    }
    result
}
