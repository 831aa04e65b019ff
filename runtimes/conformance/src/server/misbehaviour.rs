//! How a server misbehaves: towards all new connections by its [`Manners`], towards one by the names of commands.

use bson::{RawDocument, rawdoc};
use cmap_core::wire::{Flags, Limits, Message, MessageIds, MessageWriter};

/// How new connections are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manners {
    /// They are served.
    #[default]
    Serve,
    /// They are accepted and never answered; under TLS, the handshake is not.
    NeverAnswer,
    /// They are answered in another protocol.
    SpeakHttp,
    /// This is done to the first bytes that come, under TLS to the handshake.
    AtOnce(Deed),
    /// This is done to the commands of this name. The first hello is `hello` under any of its names.
    To(&'static str, Deed),
}

/// A deed done to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is not answered.
    Silence,
    /// The connection ends.
    HangUp,
    /// The connection is reset.
    Reset,
    /// Half of the answer is sent, and then the connection ends.
    HalfThenEnd,
    /// Half of the answer is sent.
    HalfThenSilence,
    /// It is answered, and then the connection ends.
    AnswerThenEnd,
    /// It is answered in another protocol, until the client hangs up.
    SpeakHttp,
    /// It is answered twice, in one piece.
    AnswerTwice,
    /// It is answered, and so is the next command, which was not sent yet.
    AnswerAhead,
    /// It is answered, and half of the answer to the next command comes along.
    AnswerHalfAhead,
}

impl Manners {
    /// A deed done to a connection before its first command.
    pub(super) fn at_once(self) -> Option<Deed> {
        match self {
            Self::NeverAnswer => Some(Deed::Silence),
            Self::SpeakHttp => Some(Deed::SpeakHttp),
            Self::AtOnce(deed) => Some(deed),
            Self::Serve | Self::To(..) => None,
        }
    }

    /// A deed done to a command, and the answer that may be a part of it.
    pub(super) fn deed(self, command: &Message<'_>) -> Option<(Deed, Vec<u8>)> {
        let name = match name(command.body) {
            "isMaster" => "hello",
            name => name,
        };
        let deed = match self {
            Self::To(own, deed) if own == name => deed,
            Self::Serve | Self::NeverAnswer | Self::SpeakHttp | Self::AtOnce(_) | Self::To(..) => Deed::named(name)?,
        };
        let request = command.header.ids.request_id;
        Some((deed, [encode(request, &rawdoc! { "ok": 1.0 }), deed.unasked(request)].concat()))
    }
}

impl Deed {
    /// The bytes sent after the answer to `request`.
    fn unasked(self, request: i32) -> Vec<u8> {
        let ahead = encode(request.wrapping_add(1), &rawdoc! { "ok": 1.0, "ahead": true });
        match self {
            Self::AnswerTwice => encode(request, &rawdoc! { "ok": 1.0 }),
            Self::AnswerAhead => ahead,
            Self::AnswerHalfAhead => ahead[..ahead.len() / 2].to_vec(),
            Self::Silence
            | Self::HangUp
            | Self::Reset
            | Self::HalfThenEnd
            | Self::HalfThenSilence
            | Self::AnswerThenEnd
            | Self::SpeakHttp => Vec::new(),
        }
    }

    /// The deed done to a command of this name, whatever the manners.
    fn named(command: &str) -> Option<Self> {
        Some(match command {
            "neverAnswer" => Self::Silence,
            "hangUp" => Self::HangUp,
            "reset" => Self::Reset,
            "halfThenEnd" => Self::HalfThenEnd,
            "halfThenSilence" => Self::HalfThenSilence,
            "answerThenEnd" => Self::AnswerThenEnd,
            "answerTwice" => Self::AnswerTwice,
            "answerAhead" => Self::AnswerAhead,
            "answerHalfAhead" => Self::AnswerHalfAhead,
            _ => return None,
        })
    }
}

fn name(body: &RawDocument) -> &str {
    body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str())
}

fn encode(request: i32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let ids = MessageIds::reply(1, request);
    MessageWriter::begin(&mut out, ids, Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}
