//! The client's side of one SCRAM conversation.
//!
//! ```text
//! Started --server-first--> Deriving --keys--> Proved --server-final, done--> Ended
//!                                                 \--server-final, not done--> Confirming --done--> Ended
//! ```
//!
//! Every fault of the server leads to `Ended` too; a call out of turn changes nothing.

use alloc::string::String;
use core::{fmt, mem};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::conversation::{Reply, Step};
use super::super::error::{AuthError, AuthMisuse, LoginError, ServerFault};
use super::super::secret::{Payload, SecretBytes};
use super::hash::ScramHash;
use super::keys::{DeriveKey, DerivedKeys, KeyId};
use super::message::{ServerFirst, escape, server_signature};
use super::nonce::Nonce;
use super::{GS2_HEADER, GS2_HEADER_BASE64, MIN_ITERATIONS};
use crate::options::Secret;

pub(in super::super) struct ScramClient {
    hash: ScramHash,
    nonce: Nonce,
    /// Client-first, without its header and with it.
    first_bare: String,
    first: Payload,
    /// The highest iteration count that the server may ask for.
    max_iterations: u32,
    state: State,
}

enum State {
    /// Client-first is out, or may be sent again (AUTH-10).
    Started { password: SecretBytes },
    /// Server-first came; its keys are asked for.
    Deriving { id: KeyId, server_first: String, nonce: String },
    /// The proof is out.
    Proved { signature: SecretBytes },
    /// Both sides are proven; the server wants one more, empty exchange (AUTH-15).
    Confirming,
    /// The conversation is over, whatever its result.
    Ended,
}

impl ScramClient {
    pub(in super::super) fn new(
        hash: ScramHash,
        username: &str,
        password: &Secret,
        nonce: Nonce,
        max_iterations: u32,
    ) -> Result<Self, LoginError> {
        Ok(Self::with_prepared(hash, username, hash.prepare(username, password)?, nonce, max_iterations))
    }

    /// The RFCs' examples are SCRAM without MongoDB's digest.
    pub(in super::super) fn with_prepared(
        hash: ScramHash,
        username: &str,
        password: SecretBytes,
        nonce: Nonce,
        max_iterations: u32,
    ) -> Self {
        let first_bare = alloc::format!("n={},r={}", escape(username), nonce.as_str());
        let first = Payload::from_text(&alloc::format!("{GS2_HEADER}{first_bare}"));
        Self { hash, nonce, first_bare, first, max_iterations, state: State::Started { password } }
    }

    /// The client-first message. Until the server answers it, it may be sent again: a speculation that was ignored
    /// leaves nothing behind (AUTH-10).
    pub(in super::super) fn first(&self) -> &Payload {
        &self.first
    }

    pub(in super::super) fn handle_reply(&mut self, reply: Reply<'_>) -> Result<Step, AuthError> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Started { password } => self.handle_server_first(password, reply),
            State::Proved { signature } => self.handle_server_final(&signature, reply),
            State::Confirming if reply.done => Ok(Step::Done),
            State::Confirming => Err(ServerFault::NotEnded.into()),
            state @ (State::Deriving { .. } | State::Ended) => {
                self.state = state;
                Err(AuthMisuse::UnexpectedReply.into())
            }
        }
    }

    pub(in super::super) fn handle_keys(&mut self, keys: &DerivedKeys) -> Result<Step, AuthError> {
        let State::Deriving { id, server_first, nonce } = &self.state else {
            return Err(AuthMisuse::UnexpectedKeys.into());
        };
        if id != keys.id() {
            return Err(AuthMisuse::UnexpectedKeys.into());
        }
        let without_proof = alloc::format!("c={GS2_HEADER_BASE64},r={nonce}");
        let auth_message = auth_message(&self.first_bare, server_first, &without_proof);
        let stored_key = self.hash.digest(&[keys.client_key().as_bytes()]);
        let proof = keys.client_key().xor(self.hash.hmac(&stored_key, auth_message.as_bytes()).as_bytes());
        let signature = self.hash.hmac(keys.server_key(), auth_message.as_bytes());

        let mut message = without_proof;
        message.push_str(",p=");
        STANDARD.encode_string(proof.as_bytes(), &mut message);
        self.state = State::Proved { signature };
        Ok(Step::Send(Payload::from_text(&message)))
    }

    fn handle_server_first(&mut self, password: SecretBytes, reply: Reply<'_>) -> Result<Step, AuthError> {
        let ServerFirst { text, nonce, salt, iterations } = ServerFirst::parse(reply.payload)?;
        if reply.done {
            return Err(ServerFault::EndedEarly.into());
        }
        // AUTH-16. A server that adds nothing of its own could be replaying an old conversation.
        if nonce.strip_prefix(self.nonce.as_str()).is_none_or(str::is_empty) {
            return Err(ServerFault::Nonce.into());
        }
        // Checked before any work is done for the server.
        let allowed = self.max_iterations;
        let iterations = match u32::try_from(iterations) {
            // AUTH-13.
            Ok(few) if few < MIN_ITERATIONS => return Err(ServerFault::TooFewIterations(few).into()),
            Ok(asked) if asked <= allowed => asked,
            Ok(_) | Err(_) => return Err(ServerFault::TooManyIterations { asked: iterations, allowed }.into()),
        };
        let request = DeriveKey::new(self.hash, password, salt, iterations);
        self.state = State::Deriving { id: request.id().clone(), server_first: text.into(), nonce: nonce.into() };
        Ok(Step::Derive(request))
    }

    fn handle_server_final(&mut self, signature: &SecretBytes, reply: Reply<'_>) -> Result<Step, AuthError> {
        let given = server_signature(reply.payload)?;
        if !signature.is(&given) {
            return Err(ServerFault::Signature.into());
        }
        if reply.done {
            return Ok(Step::Done);
        }
        self.state = State::Confirming;
        Ok(Step::Send(Payload::empty()))
    }
}

/// What both sides sign.
pub(super) fn auth_message(client_first_bare: &str, server_first: &str, client_final_without_proof: &str) -> String {
    alloc::format!("{client_first_bare},{server_first},{client_final_without_proof}")
}

impl fmt::Debug for ScramClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Started { .. } => "Started",
            State::Deriving { .. } => "Deriving",
            State::Proved { .. } => "Proved",
            State::Confirming => "Confirming",
            State::Ended => "Ended",
        };
        let Self { hash, .. } = self;
        f.debug_struct("ScramClient").field("hash", hash).field("state", &state).finish_non_exhaustive()
    }
}
