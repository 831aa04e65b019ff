//! The server's side of one SCRAM conversation (RFC 5802, RFC 7677).
//!
//! Two values, each of which is used up by the step that follows it, so no step can be taken twice: [`ScramLogin`]
//! after client-first, while the user is looked up; [`ScramVerifier`] after server-first.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::error::{ClientFault, Malformed, Message};
use super::hash::{digest, hmac, xor};
use super::message::{ClientFinal, ClientFirst};
use super::stored::StoredCredential;

/// A client that logs in: its client-first message.
#[derive(Debug)]
pub struct ScramLogin {
    username: String,
    nonce: String,
    bare: String,
}

/// A challenged client: server-first is out.
pub struct ScramVerifier {
    credential: StoredCredential,
    /// The client's nonce and ours.
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

impl ScramLogin {
    /// Reads a client-first message, the payload of `saslStart`. Inside a hello a fault is no error of the hello: the
    /// reply then lacks `speculativeAuthenticate` (SRV-6, AUTH-10).
    pub fn parse(payload: &[u8]) -> Result<Self, ClientFault> {
        let ClientFirst { username, nonce, bare } = ClientFirst::parse(payload)?;
        Ok(Self { username, nonce: nonce.into(), bare: bare.into() })
    }

    /// The user that logs in.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The server-first message. `nonce` is random and printable, and has no comma. For a user that does not exist take
    /// a [`StoredCredential::decoy`], or refuse, as MongoDB does.
    #[must_use]
    pub fn challenge(self, nonce: &str, credential: &StoredCredential) -> (ScramVerifier, String) {
        let nonce = self.nonce + nonce;
        let salt = STANDARD.encode(&credential.salt);
        let server_first = format!("r={nonce},s={salt},i={}", credential.iterations);
        let (credential, client_first_bare) = (credential.clone(), self.bare);
        (ScramVerifier { credential, nonce, client_first_bare, server_first: server_first.clone() }, server_first)
    }
}

impl ScramVerifier {
    /// Verifies a client-final message, the payload of the first `saslContinue`, and gives the server-final message.
    ///
    /// The reply is `done` if the client asked for `skipEmptyExchange`; otherwise the client sends one more
    /// `saslContinue`, an empty one, whose empty reply is `done` (AUTH-15).
    pub fn verify(self, payload: &[u8]) -> Result<String, ClientFault> {
        let ClientFinal { nonce, proof, without_proof } = ClientFinal::parse(payload)?;
        let StoredCredential { hash, stored_key, server_key, .. } = &self.credential;
        if proof.len() != stored_key.len() {
            return Err(ClientFault::Malformed { message: Message::ClientFinal, problem: Malformed::Proof });
        }
        if nonce != self.nonce {
            return Err(ClientFault::Nonce);
        }
        // What both sides sign.
        let auth_message = [&*self.client_first_bare, &*self.server_first, without_proof].join(",");
        let client_key = xor(&hmac(*hash, stored_key, auth_message.as_bytes()), &proof);
        let claimed = digest(*hash, &[&client_key]);
        if !bool::from(claimed.ct_eq(stored_key)) {
            return Err(ClientFault::Proof);
        }
        let signature = hmac(*hash, server_key, auth_message.as_bytes());
        Ok(format!("v={}", STANDARD.encode(&*signature)))
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier").field("credential", &self.credential).finish_non_exhaustive()
    }
}
