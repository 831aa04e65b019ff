//! Logging in at the hub: SCRAM by `saslStart` and `saslContinue`, a certificate by `authenticate`, and the first of each inside a hello.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawDocument, RawDocumentBuf, cstr};
use cmap_core::connection::auth::{Nonce, ScramHash, ScramLogin, ScramVerifier};
use cmap_core::wire::integer;

use super::refusal::Refusal;
use crate::users::{User, Users};

/// The number of every conversation: a connection has one at a time.
const CONVERSATION: i32 = 1;

/// The database that knows the hub's users.
const SOURCE: &str = "admin";

/// The database that knows the users of certificates.
pub(super) const EXTERNAL: &str = "$external";

/// Whether a command of this name is part of a login.
pub(crate) fn is_login(command: &str) -> bool {
    matches!(command, "saslStart" | "saslContinue" | "authenticate")
}

/// A login between two of its messages.
#[derive(Debug)]
pub(super) enum Conversation {
    /// The client's proof comes next.
    Proof { verifier: Box<ScramVerifier>, user: Option<Arc<User>>, skip_empty_exchange: bool },
    /// The proof was right; the client sends one more, empty message (AUTH-15).
    Empty { user: Option<Arc<User>> },
}

/// A message was right.
pub(super) struct Step {
    pub(super) reply: RawDocumentBuf,
    pub(super) next: Next,
}

/// What follows a message.
pub(super) enum Next {
    /// Another message.
    Goes(Conversation),
    /// The client is this user, as it was when the login began. Only one that exists has proven itself.
    Is(Option<Arc<User>>),
}

/// `saslStart`.
pub(super) fn start(
    users: &Users,
    database: &str,
    body: &RawDocument,
    nonce: [u8; Nonce::RANDOM_BYTES],
) -> Result<Step, Refusal> {
    let hash = match body.get_str("mechanism") {
        Ok("SCRAM-SHA-1") => ScramHash::Sha1,
        Ok("SCRAM-SHA-256") => ScramHash::Sha256,
        Ok(_) | Err(_) => {
            let message = "the hub knows the mechanisms SCRAM-SHA-256 and SCRAM-SHA-1; choose one of them";
            return Err(Refusal::new(334, "MechanismUnavailable", message));
        }
    };
    let failed = Refusal::authentication_failed;
    if database != SOURCE {
        return Err(failed());
    }
    let payload = body.get_binary("payload").map_err(|_| failed())?;
    let login = ScramLogin::parse(payload.bytes).map_err(|_| failed())?;
    let name = login.username();
    let (user, keys) = (users.get(name).cloned(), users.keys(name, hash));
    let (verifier, first) = login.challenge(&Nonce::from_random(nonce), &keys);
    let options = body.get_document("options");
    let skip_empty_exchange = options.is_ok_and(|options| options.get_bool("skipEmptyExchange").unwrap_or_default());
    let next = Next::Goes(Conversation::Proof { verifier: Box::new(verifier), user, skip_empty_exchange });
    Ok(Step { reply: reply(first.as_bytes(), false), next })
}

/// The name of the user that a `saslStart` is for, if it can be read.
pub(super) fn name(body: &RawDocument) -> Option<String> {
    let login = ScramLogin::parse(body.get_binary("payload").ok()?.bytes).ok()?;
    Some(login.username().to_owned())
}

/// `saslContinue`.
pub(super) fn go_on(conversation: Option<Conversation>, body: &RawDocument) -> Result<Step, Refusal> {
    let failed = Refusal::authentication_failed;
    let id = body.get("conversationId").ok().flatten().and_then(integer);
    let Some(conversation) = conversation.filter(|_| id == Some(CONVERSATION.into())) else {
        return Err(Refusal::new(17, "ProtocolError", "No SASL session state found"));
    };
    let payload = body.get_binary("payload").map_err(|_| failed())?;
    match conversation {
        Conversation::Proof { verifier, user, skip_empty_exchange } => {
            let last = verifier.verify(payload.bytes).map_err(|_| failed())?;
            let next = if skip_empty_exchange { Next::Is(user) } else { Next::Goes(Conversation::Empty { user }) };
            Ok(Step { reply: reply(last.as_bytes(), skip_empty_exchange), next })
        }
        Conversation::Empty { user } if payload.bytes.is_empty() => {
            Ok(Step { reply: reply(&[], true), next: Next::Is(user) })
        }
        Conversation::Empty { .. } => Err(failed()),
    }
}

/// The reply to who has logged in by a certificate of this subject.
pub(super) fn certificate_reply(subject: &str) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("dbname"), EXTERNAL);
    reply.append(cstr!("user"), subject);
    reply
}

fn reply(payload: &[u8], done: bool) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("conversationId"), CONVERSATION);
    reply.append(cstr!("done"), done);
    reply.append(cstr!("payload"), RawBinaryRef { subtype: BinarySubtype::Generic, bytes: payload });
    reply
}
