//! A mechanism of one's own, and a server that knows it, in one process: `cargo run --example own_mechanism`.
//!
//! The client names itself, the server sends a challenge, and the client answers with the challenge and its token, mixed. That
//! shows the shape of a conversation of two rounds; as a proof it is a toy.

use std::error::Error;
use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{Login, MechanismError, Payload, SaslConversation, SaslMechanism, SaslStep};
use cmap_core::connection::{
    ClientMetadata, Connection, ConnectionOptions, Establish, EstablishError, Fault, Phase, Progress,
};
use cmap_core::wire::{Content, Decoder, Flags, FrameReader, Limits, MessageIds, MessageWriter};

const CHALLENGE: &[u8] = b"a question";

/// The mechanism: all that connections share.
#[derive(Debug)]
struct Toy {
    user: &'static str,
    token: Token,
}

/// A token that `Debug` does not show.
#[derive(Clone, Copy)]
struct Token(&'static [u8]);

/// One connection's conversation.
struct Conversation {
    user: &'static str,
    token: Token,
    has_answered: bool,
}

impl SaslMechanism for Toy {
    fn name(&self) -> &str {
        "EXAMPLE-TOY"
    }

    fn begin(&self, _login: &Login<'_>) -> Result<Box<dyn SaslConversation>, MechanismError> {
        if self.token.0.is_empty() {
            return Err("there is no token; fetch one first".into());
        }
        Ok(Box::new(Conversation { user: self.user, token: self.token, has_answered: false }))
    }
}

impl SaslConversation for Conversation {
    fn first(&mut self) -> Result<Payload, MechanismError> {
        Ok(self.user.as_bytes().to_vec().into())
    }

    fn handle_reply(&mut self, payload: &[u8], _done: bool) -> Result<SaslStep, MechanismError> {
        if std::mem::replace(&mut self.has_answered, true) {
            return if payload == b"welcome" { Ok(SaslStep::Done) } else { Err("the server does not know us".into()) };
        }
        Ok(SaslStep::Send(self.token.mixed_with(payload).into()))
    }
}

impl Token {
    fn mixed_with(self, challenge: &[u8]) -> Vec<u8> {
        challenge.iter().zip(self.0.iter().cycle()).map(|(a, b)| a ^ b).collect()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let connection = log_in(Toy { user: "app", token: Token(b"secret") })?;
    println!("logged in: {}", connection.is_idle());
    Ok(())
}

/// Establishes a connection to a server in this process.
fn log_in(mechanism: Toy) -> Result<Connection, EstablishError> {
    let mut options = ConnectionOptions::new(ClientMetadata::new("Linux"));
    options.mechanism = Some(Arc::new(mechanism));
    let mut establish = Establish::new(Arc::new(options), [7; 24])?;
    let mut progress = Progress::Exchange;
    while matches!(progress, Progress::Exchange) {
        let mut request = Vec::new();
        establish.write_to(&mut request);
        let reply = serve(&request).unwrap_or_default();
        progress = establish.handle_bytes(&reply)?;
    }
    // No toy derives keys, so nothing but the end has ended the loop.
    establish.finish().ok_or_else(|| EstablishError::new(Phase::Authenticate, Fault::Other, "it ended before its end"))
}

/// The server: one request, one reply.
fn serve(mut request: &[u8]) -> Option<Vec<u8>> {
    let (mut frames, mut decoder) = (FrameReader::new(), Decoder::new());
    let frame = frames.read(&mut request, &Limits::DEFAULT).ok()??;
    let Content::Message(message) = decoder.decode(frame, &Limits::DEFAULT).ok()?.content else { return None };
    let reply = answer(message.body)?;
    let mut out = Vec::new();
    let ids = MessageIds::reply(1, message.header.ids.request_id);
    MessageWriter::begin(&mut out, ids, Flags::NONE, &reply, &[], &Limits::DEFAULT).ok()?.finish();
    Some(out)
}

fn answer(command: &RawDocument) -> Option<RawDocumentBuf> {
    let payload = command.get_binary("payload").map(|payload| payload.bytes).unwrap_or_default();
    let (name, _) = command.iter().next()?.ok()?;
    Some(match name.as_str() {
        "saslStart" if payload == b"app" => sasl(CHALLENGE, false),
        "saslContinue" if payload == Token(b"secret").mixed_with(CHALLENGE) => sasl(b"welcome", true),
        "saslStart" | "saslContinue" => rawdoc! { "ok": 0, "code": 18, "errmsg": "Authentication failed." },
        _ => rawdoc! { "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25 },
    })
}

fn sasl(payload: &[u8], done: bool) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.to_vec() };
    rawdoc! { "ok": 1, "conversationId": 1, "done": done, "payload": payload }
}

#[cfg(test)]
mod tests {
    use super::{Token, Toy, log_in};

    fn refused(user: &'static str, token: &'static [u8]) -> String {
        log_in(Toy { user, token: Token(token) }).map_or_else(|error| error.to_string(), |_| "it logged in".into())
    }

    #[test]
    fn a_mechanism_of_ones_own_logs_in() {
        assert!(log_in(Toy { user: "app", token: Token(b"secret") }).is_ok());
    }

    #[test]
    fn a_login_that_the_server_refuses_says_what_to_check() {
        for (user, token) in [("nobody", &b"secret"[..]), ("app", b"wrong")] {
            let text = refused(user, token);

            assert!(text.starts_with("authentication failed: the server refused the login (18); check"), "{text}");
            assert!(!text.contains("wrong"), "{text}");
        }
    }

    #[test]
    fn a_mechanism_that_cannot_begin_says_why_before_anything_is_sent() {
        let expected = "authentication failed: EXAMPLE-TOY: there is no token; fetch one first";

        assert_eq!(refused("app", b""), expected);
    }
}
