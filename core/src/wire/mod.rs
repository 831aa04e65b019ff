//! MongoDB's wire protocol: messages to bytes, and bytes to messages.
//!
//! Nothing here reads or writes a socket. Outgoing messages are appended to the caller's buffer; incoming bytes go
//! through three steps, each of which trusts only the checks of the step before:
//!
//! ```text
//! bytes, in any pieces --FrameReader--> one whole message --Decoder--> Message --CommandReply--> success or error
//! ```
//!
//! Every length is checked before anything is allocated for it, documents are checked in one pass and then read in
//! place, and no input makes this code panic, recurse or compute without bound. After a [`WireError`] the connection to
//! the peer must be closed.
//!
//! Readers take [`Limits::DEFAULT`], or [`Limits::GREETING`] before a connection is established; writers take the
//! limits in the hello of the connection (HS-16).
//!
//! ```
//! use bson::rawdoc;
//! use cmap_core::wire::{CommandReply, Content, Decoder, Field, Flags, FrameReader, Limits, MessageIds, MessageWriter};
//!
//! // A command on its way out: $db is appended, the command itself is never changed (MSG-10).
//! let limits = Limits::DEFAULT;
//! let ping = rawdoc! { "ping": 1 };
//! let mut out = Vec::new();
//! let fields = [Field::String("$db", "admin")];
//! MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &ping, &fields, &limits)?.finish();
//!
//! // On the other side, in pieces of ten bytes.
//! let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
//! for mut piece in out.chunks(10) {
//!     while let Some(frame) = frames.read(&mut piece, &limits)? {
//!         let Content::Message(message) = decoder.decode(frame, &limits)?.content else { unreachable!() };
//!         assert_eq!(message.body, &*rawdoc! { "ping": 1, "$db": "admin" });
//!         assert!(!CommandReply::read(message.body).ok, "it is a command, not a reply");
//!     }
//! }
//! assert!(frames.is_at_boundary());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod compression;
pub mod document;

mod buffer_pool;
mod checksum;
mod cursor;
mod decoder;
mod error;
mod field;
mod flags;
mod frame;
mod header;
mod limits;
mod op_compressed;
mod op_msg;
mod op_msg_writer;
mod op_query;
mod reply;
mod write_failure;

pub use bson;

pub use buffer_pool::{BufferPool, Excess, KEPT, Lender};
pub use compression::{Compression, CompressionError, Compressor, CompressorId, Decompressor, ZlibLevel};
pub use decoder::{Content, Decoder, Incoming};
pub use document::DocumentError;
pub use error::{EncodeError, SHOWN, WireError};
pub use field::Field;
pub(crate) use field::check_name;
pub use flags::Flags;
pub use frame::FrameReader;
pub(crate) use frame::is_tls_alert;
pub use header::{HEADER_LEN, Header, MessageIds, OpCode};
pub use limits::{DOCUMENT_ALLOWANCE, Limits};
pub use op_compressed::unpack;
pub use op_msg::{Documents, MAX_IDENTIFIER, MAX_SECTIONS, Message, Sequence};
pub use op_msg_writer::MessageWriter;
pub use op_query::{Query, Reply, encode_query, encode_reply};
pub use reply::{CommandReply, ErrorFields, ServerError, integer};
pub use write_failure::{WriteError, WriteFailure};

pub use crate::topology_version::TopologyVersion;
