//! A server that lies: the test decides the answer to every command, whatever was true before.

use std::io::{Read, Write};
use std::thread;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::options::ClientOptions;
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

use super::server::listener::{Acceptor, Listener, Place, Stream};

/// A lying server at a port of its own, until it is dropped.
pub(super) struct Rogue {
    place: Place,
    _acceptor: Acceptor,
}

impl Rogue {
    /// A server that calls `accept` for every connection, and answers its commands by the function that it gets.
    pub(super) fn start<A>(accept: impl Fn() -> A + Send + 'static) -> Self
    where
        A: FnMut(&str, &RawDocument) -> RawDocumentBuf + Send + 'static,
    {
        let listener = Listener::tcp_anywhere().unwrap();
        let place = listener.place().unwrap();
        let acceptor = Acceptor::start(listener, move |stream| {
            let answer = accept();
            thread::spawn(move || serve(&stream, answer));
        });
        Self { place, _acceptor: acceptor }
    }

    /// The options of a client that logs in as `app`; `query` are those of its connection string.
    pub(super) fn options(&self, query: &str) -> ClientOptions {
        ClientOptions::parse(&format!("mongodb://app:secret@{}/?{query}", self.place)).unwrap().0
    }
}

/// Answers until the client hangs up.
fn serve(mut stream: &Stream, mut answer: impl FnMut(&str, &RawDocument) -> RawDocumentBuf) {
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let (mut bytes, mut replies) = (&buffer[..count], Vec::new());
        while let Some(frame) = frames.read(&mut bytes, &Limits::DEFAULT).unwrap() {
            let incoming = decoder.decode(frame, &Limits::DEFAULT).unwrap();
            let Content::Message(command) = incoming.content else { panic!("everything is OP_MSG (HS-2)") };
            let (name, _) = command.body.iter().next().unwrap().unwrap();
            let reply = answer(name.as_str(), command.body);
            let ids = MessageIds::reply(1, command.header.ids.request_id);
            MessageWriter::begin(&mut replies, ids, Flags::NONE, &reply, &[], &Limits::DEFAULT).unwrap().finish();
        }
        if stream.write_all(&replies).is_err() {
            return;
        }
    }
}
