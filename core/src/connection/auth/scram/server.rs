//! The server's side of one SCRAM conversation, for servers that are embedded in tests.
//!
//! Two values, each of which is used up by the step that follows it, so none can be taken twice:
//! [`ScramLogin`] after client-first, while the user is looked up; [`ScramVerifier`] after server-first.

use alloc::string::{String, ToString};
use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::error::{ClientFault, Malformed, Message};
use super::super::secret::{Payload, SecretBytes};
use super::client::auth_message;
use super::client_message::{ClientFinal, ClientFirst};
use super::hash::xor;
use super::nonce::Nonce;
use super::stored::StoredCredential;

/// A client that wants in: its client-first message.
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

    /// Who wants in.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The server-first message. For a user that does not exist take a [`StoredCredential::decoy`], or refuse, as
    /// MongoDB does.
    #[must_use]
    pub fn challenge(self, nonce: &Nonce, credential: &StoredCredential) -> (ScramVerifier, Payload) {
        let nonce = self.nonce + nonce.as_str();
        let salt = STANDARD.encode(&credential.salt);
        let server_first = alloc::format!("r={nonce},s={salt},i={}", credential.iterations);
        let payload = Payload::from_text(&server_first);
        let credential = credential.clone();
        (ScramVerifier { credential, nonce, client_first_bare: self.bare, server_first }, payload)
    }
}

impl ScramVerifier {
    /// Verifies a client-final message, the payload of the first `saslContinue`, and gives the server-final message.
    ///
    /// The reply is `done` if the client asked for `skipEmptyExchange`; otherwise the client sends one more
    /// `saslContinue`, an empty one, whose empty reply is `done` (AUTH-15).
    pub fn verify(self, payload: &[u8]) -> Result<Payload, ClientFault> {
        let ClientFinal { nonce, proof, without_proof } = ClientFinal::parse(payload)?;
        let StoredCredential { hash, stored_key, server_key, .. } = &self.credential;
        if proof.len() != hash.size() {
            return Err(ClientFault::Malformed { message: Message::ClientFinal, problem: Malformed::Proof });
        }
        if nonce != self.nonce {
            return Err(ClientFault::Nonce);
        }
        let auth_message = auth_message(&self.client_first_bare, &self.server_first, without_proof);
        let client_key = xor(&hash.hmac(stored_key, auth_message.as_bytes()), &proof);
        let claimed: SecretBytes = hash.digest(&[client_key.as_bytes()]);
        if claimed != *stored_key {
            return Err(ClientFault::Proof);
        }
        let signature = hash.hmac(server_key, auth_message.as_bytes());
        Ok(Payload::from_text(&("v=".to_string() + &STANDARD.encode(signature.as_bytes()))))
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier").field("credential", &self.credential).finish_non_exhaustive()
    }
}
