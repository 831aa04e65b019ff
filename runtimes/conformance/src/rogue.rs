//! A server that lies: the test decides the answer to every command, whatever was true before.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::options::ClientOptions;
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

use super::ground::{self, Site, Socket};

/// A lying server at a port of its own, until it is dropped.
pub(super) struct Rogue {
    // Dropped before its site.
    _acceptor: Box<dyn Send>,
    site: Box<dyn Site>,
}

impl Rogue {
    /// A server that calls `accept` for every connection, and answers its commands by the function that it gets. A command that gets
    /// an empty document has no answer.
    pub(super) fn start<A>(accept: impl Fn() -> A + Send + 'static) -> Self
    where
        A: FnMut(&str, &RawDocument) -> RawDocumentBuf + Send + 'static,
    {
        let ground = ground::current();
        let site = ground.site().unwrap();
        let acceptor = site.listen(Box::new(move |socket| ground.spawn(Box::pin(serve(socket, accept())))));
        Self { _acceptor: acceptor.unwrap(), site }
    }

    /// Its host and port.
    pub(super) fn place(&self) -> String {
        self.site.place().to_string()
    }

    /// The options of a client that logs in as `app`; `query` are those of its connection string.
    pub(super) fn options(&self, query: &str) -> ClientOptions {
        ClientOptions::parse(&format!("mongodb://app:secret@{}/?{query}", self.site.place())).unwrap().0
    }
}

/// Answers until the client hangs up.
async fn serve(socket: Arc<dyn Socket>, mut answer: impl FnMut(&str, &RawDocument) -> RawDocumentBuf) {
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = ground::read(&*socket, &mut buffer).await {
        let (mut bytes, mut replies) = (&buffer[..count], Vec::new());
        while let Some(frame) = frames.read(&mut bytes, &Limits::DEFAULT).unwrap() {
            let incoming = decoder.decode(frame, &Limits::DEFAULT).unwrap();
            let Content::Message(command) = incoming.content else { panic!("everything is OP_MSG (HS-2)") };
            let (name, _) = command.body.iter().next().unwrap().unwrap();
            let reply = answer(name.as_str(), command.body);
            if reply.is_empty() {
                continue;
            }
            let ids = MessageIds::reply(1, command.header.ids.request_id);
            MessageWriter::begin(&mut replies, ids, Flags::NONE, &reply, &[], &Limits::DEFAULT).unwrap().finish();
        }
        if ground::write_all(&*socket, &replies).await.is_err() {
            return;
        }
    }
}
