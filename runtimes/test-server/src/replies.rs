//! Encoding of replies: numbered, in the form that the request wants, and compressed as the request was.

use bson::RawDocumentBuf;
use cmap_core::wire::compression::is_compressible;
use cmap_core::wire::{
    Compression, Compressor, CompressorId, EncodeError, Field, Flags, Limits, MessageIds, MessageWriter, ZlibLevel,
    encode_reply,
};

use super::failure::{self, fail};
use super::request::{AnswerForm, AnswerKind};
use super::service::Reply;
use super::traffic::Traffic;

/// Encodes the replies of all clients.
#[derive(Debug, Default)]
pub(super) struct Replies {
    last_id: i32,
    /// Made when they are first needed; each serves all clients.
    compressors: [Option<Compressor>; CompressorId::ALL.len()],
}

impl Replies {
    /// The bytes of a reply to `command`, and the reply's number. With `more_to_come` another follows (MSG-8).
    pub(super) fn encode(
        &mut self,
        traffic: &mut Traffic,
        answer: AnswerForm,
        command: &str,
        reply: &Reply,
        more_to_come: bool,
    ) -> (Vec<u8>, i32) {
        self.last_id = self.last_id.wrapping_add(1);
        let ids = MessageIds::reply(self.last_id, answer.response_to);
        let mut bytes = Vec::with_capacity(reply.body.as_bytes().len() + reply.tail.as_bytes().len() + 64);
        if let Err(error) = encode(&mut bytes, ids, answer.kind, reply, more_to_come) {
            // Only the command's own part can be too long, or have a duplicate name.
            let failure = fail(1, format!("the reply cannot be encoded: {error}"));
            let reply = Reply { body: failure::reply(&failure), tail: RawDocumentBuf::new(), is_error: true };
            // The shortest possible reply.
            let _ = encode(&mut bytes, ids, answer.kind, &reply, false);
        }
        if let Some(id) = answer.compressor.filter(|_| is_compressible(command)) {
            self.compress(traffic, id, &mut bytes);
        }
        traffic.bytes_out += bytes.len() as u64;
        (bytes, self.last_id)
    }

    /// Compresses a reply; one that cannot be compressed stays as it is, which is allowed (COMP-5).
    fn compress(&mut self, traffic: &mut Traffic, id: CompressorId, bytes: &mut Vec<u8>) {
        let slot = &mut self.compressors[usize::from(id.id())];
        if slot.is_none() {
            *slot = Compressor::new(compression(id)).ok();
        }
        let plain = bytes.len();
        if let Some(compressor) = slot
            && compressor.compress_reply(bytes, 0, &Limits::DEFAULT) == Ok(true)
        {
            traffic.count_compressed(id, plain, bytes.len());
        }
    }
}

fn compression(id: CompressorId) -> Compression {
    match id {
        CompressorId::Noop => Compression::Noop,
        CompressorId::Snappy => Compression::Snappy,
        CompressorId::Zlib => Compression::Zlib(ZlibLevel::DEFAULT),
        CompressorId::Zstd => Compression::Zstd,
    }
}

fn encode(
    out: &mut Vec<u8>,
    ids: MessageIds,
    kind: AnswerKind,
    reply: &Reply,
    more_to_come: bool,
) -> Result<(), EncodeError> {
    let limits = Limits::DEFAULT;
    let checksum = match kind {
        AnswerKind::Silence => return Ok(()),
        AnswerKind::Reply => {
            let mut whole = reply.body.clone();
            reply.tail.iter().map_while(Result::ok).for_each(|(name, value)| whole.append(name, value));
            return encode_reply(out, ids, &whole, &limits).map(drop);
        }
        AnswerKind::Message { checksum } | AnswerKind::Messages { checksum } => checksum,
    };
    let mut flags = Flags::NONE;
    if checksum {
        flags = flags.with(Flags::CHECKSUM_PRESENT);
    }
    if more_to_come {
        flags = flags.with(Flags::MORE_TO_COME);
    }
    let fields = [Field::All(&reply.tail)];
    MessageWriter::begin(out, ids, flags, &reply.body, &fields, &limits)?.finish();
    Ok(())
}
