//! A conversation in which the server goes on answering: one hello, and a reply whenever something changes (MSG-8).

use std::collections::VecDeque;
use std::time::Duration;

use cmap_core::wire::bson::{Document, RawDocument, RawDocumentBuf, cstr, rawdoc};
use cmap_core::wire::{Content, Decoder, Field, Flags, FrameReader, Limits, MessageIds, MessageWriter};

use super::client::{Client, ClientError, succeeded};
use super::expect::{self, Mismatch};
use super::transport::Transport;

/// The replies to one hello.
#[derive(Debug)]
pub(super) struct HelloStream {
    transport: Transport,
    frames: FrameReader,
    decoder: Decoder,
    /// The message that the next reply answers: the hello, or the reply before.
    expected: i32,
    /// Replies that came together with one before.
    replies: VecDeque<Document>,
}

impl HelloStream {
    /// Asks for replies, one at once if the server has changed since the client connected, and each at the latest after
    /// `at_most`.
    pub(super) fn start(mut client: Client, at_most: Duration) -> Result<Self, Mismatch> {
        let hello = client.run("admin", &rawdoc! { "hello": 1 })?;
        let version = hello.get_document("topologyVersion");
        let version = version.map_err(broken)?;
        let version = RawDocumentBuf::try_from(version).map_err(ClientError::from)?;
        let mut hello = rawdoc! { "hello": 1 };
        hello.append(cstr!("topologyVersion"), version);
        hello.append(cstr!("maxAwaitTimeMS"), i64::try_from(at_most.as_millis()).unwrap_or(i64::MAX));
        Self::send(client.into_transport(), &hello)
    }

    fn send(mut transport: Transport, hello: &RawDocument) -> Result<Self, Mismatch> {
        const REQUEST: i32 = 1000;
        let mut out = Vec::new();
        let fields = [Field::String("$db", "admin")];
        let ids = MessageIds::request(REQUEST);
        let message = MessageWriter::begin(&mut out, ids, Flags::EXHAUST_ALLOWED, hello, &fields, &Limits::DEFAULT);
        message.map_err(broken)?.finish();
        transport.write_all(&out).map_err(ClientError::from)?;
        Ok(Self {
            transport,
            frames: FrameReader::new(),
            decoder: Decoder::new(),
            expected: REQUEST,
            replies: VecDeque::new(),
        })
    }

    /// Waits for the next reply. It announces further replies, and names the message it follows.
    pub(super) fn next(&mut self) -> Result<Document, Mismatch> {
        while self.replies.is_empty() {
            let mut input = self.transport.receive().map_err(ClientError::from)?;
            while let Some(frame) = self.frames.read(&mut input, &Limits::DEFAULT).map_err(broken)? {
                let incoming = self.decoder.decode(frame, &Limits::DEFAULT).map_err(broken)?;
                let Content::Message(message) = incoming.content else {
                    return Err(broken("the reply is not an OP_MSG"));
                };
                let ids = message.header.ids;
                expect::equal(ids.response_to, self.expected, "what the reply answers")?;
                expect::holds(message.more_to_come(), "more replies will come")?;
                self.expected = ids.request_id;
                self.replies.push_back(succeeded(message.body)?);
            }
        }
        expect::some(self.replies.pop_front(), "a reply")
    }
}

fn broken(reason: impl ToString) -> Mismatch {
    Mismatch::Other(reason.to_string())
}
