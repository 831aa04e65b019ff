//! The server's side of a conversation (RFC 5802, RFC 7677), for what answers as a server: a hub, a server for tests.
//!
//! ```text
//! client                                           server
//!   n,,n=user,r=C                      ------->    ScramLogin::parse
//!                                      <-------    r=CS,s=salt,i=count      ScramLogin::challenge
//!   c=biws,r=CS,p=proof                ------->    ScramVerifier::verify
//!                                      <-------    v=signature
//! ```
//!
//! Two values, each of which is used up by the step that follows it, so no step can be taken twice. It shares arithmetic and
//! grammar with the client. So the two do not judge each other: the examples of the RFCs do, and official drivers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use super::client::auth_message;
use super::message::{Attributes, text};
use super::nonce::Nonce;
use super::stored::StoredKeys;
use super::{GS2_HEADER, GS2_HEADER_BASE64};

/// A client that logs in: its client-first message.
#[derive(Debug)]
pub struct ScramLogin {
    username: String,
    nonce: String,
    bare: String,
}

/// A challenged client: server-first is out.
pub struct ScramVerifier {
    keys: StoredKeys,
    /// The client's nonce and ours.
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

/// The client's fault. None holds a part of a password or of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientFault {
    /// A message does not follow its grammar.
    #[error("the client sent a malformed message")]
    Malformed,
    /// It asked for channel binding, or contradicted itself about it.
    #[error("the client asked for channel binding, or contradicted itself about it")]
    ChannelBinding,
    /// It wants to act as another user.
    #[error("the client asked for another authorization identity")]
    AuthorizationIdentity,
    /// Its final message has another nonce than this conversation.
    #[error("the client answered with a nonce of another conversation")]
    Nonce,
    /// It does not know the password.
    #[error("the client did not prove that it knows the password")]
    Proof,
}

impl ScramLogin {
    /// Reads a client-first message, the payload of `saslStart`.
    ///
    /// # Errors
    /// It is malformed, or asks for what MongoDB has not: channel binding, another authorization identity.
    pub fn parse(payload: &[u8]) -> Result<Self, ClientFault> {
        let first = text(payload).map_err(|_| ClientFault::Malformed)?;
        let Some(bare) = first.strip_prefix(GS2_HEADER) else {
            return Err(match first.split_once(',') {
                Some((binding, _)) if binding == "y" || binding.starts_with("p=") => ClientFault::ChannelBinding,
                Some(("n", rest)) if rest.starts_with("a=") => ClientFault::AuthorizationIdentity,
                Some(_) | None => ClientFault::Malformed,
            });
        };
        let mut attributes = Attributes(Some(bare));
        let read = |attributes: &mut Attributes<'_>| {
            let username = attributes.take('n').ok().and_then(unescape)?;
            let nonce = attributes.nonce().ok()?;
            Some((username, String::from(nonce)))
        };
        let (username, nonce) = read(&mut attributes).ok_or(ClientFault::Malformed)?;
        attributes.extensions().map_err(|_| ClientFault::Malformed)?;
        Ok(Self { username, nonce, bare: bare.into() })
    }

    /// The user that logs in.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The server-first message. For a user that does not exist take a [`StoredKeys::decoy`].
    #[must_use]
    pub fn challenge(self, nonce: &Nonce, keys: &StoredKeys) -> (ScramVerifier, String) {
        let nonce = self.nonce + nonce.as_str();
        let salt = STANDARD.encode(&keys.salt);
        let server_first = alloc::format!("r={nonce},s={salt},i={}", keys.iterations);
        let verifier = ScramVerifier {
            keys: keys.clone(),
            nonce,
            client_first_bare: self.bare,
            server_first: server_first.clone(),
        };
        (verifier, server_first)
    }
}

impl ScramVerifier {
    /// Verifies a client-final message, the payload of the first `saslContinue`, and gives the server-final message. Unless the
    /// client asked for `skipEmptyExchange`, it sends one more `saslContinue`, an empty one (AUTH-15).
    ///
    /// # Errors
    /// The client did not prove that it knows the password, or its message is not one of this conversation.
    pub fn verify(self, payload: &[u8]) -> Result<String, ClientFault> {
        let (nonce, proof, without_proof) = client_final(payload)?;
        let StoredKeys { hash, stored_key, server_key, .. } = &self.keys;
        if proof.len() != stored_key.as_bytes().len() {
            return Err(ClientFault::Malformed);
        }
        if nonce != self.nonce {
            return Err(ClientFault::Nonce);
        }
        let auth_message = auth_message(&self.client_first_bare, &self.server_first, without_proof);
        let client_key = hash.hmac(stored_key, auth_message.as_bytes()).xor(&proof);
        if hash.digest(&[client_key.as_bytes()]) != *stored_key {
            return Err(ClientFault::Proof);
        }
        let signature = hash.hmac(server_key, auth_message.as_bytes());
        Ok(alloc::format!("v={}", STANDARD.encode(signature.as_bytes())))
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Nonce, proof, and the message without its proof, which is the last attribute whatever extensions there are.
fn client_final(payload: &[u8]) -> Result<(&str, Vec<u8>, &str), ClientFault> {
    let malformed = ClientFault::Malformed;
    let text = text(payload).map_err(|_| malformed)?;
    let (without_proof, proof) = text.rsplit_once(",p=").ok_or(malformed)?;
    let mut attributes = Attributes(Some(without_proof));
    let header = attributes.take('c').map_err(|_| malformed)?;
    let nonce = attributes.nonce().map_err(|_| malformed)?;
    attributes.extensions().map_err(|_| malformed)?;
    let proof = STANDARD.decode(proof).map_err(|_| malformed)?;
    if header == GS2_HEADER_BASE64 { Ok((nonce, proof, without_proof)) } else { Err(ClientFault::ChannelBinding) }
}

/// A user name as it was before the client escaped it (AUTH-16).
fn unescape(username: &str) -> Option<String> {
    let mut parts = username.split('=');
    let mut result = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let (escaped, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (None, Some(rest)) => ('=', rest),
            (None, None) => return None,
        };
        result.push(escaped);
        result.push_str(rest);
    }
    Some(result)
}
