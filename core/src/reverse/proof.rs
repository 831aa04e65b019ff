//! Who may speak for a member: an agent that has a token for it, and proves that anew on each TLS connection.
//!
//! The proof is an HMAC-SHA-256 by the token's secret over bytes that only the two ends of this TLS connection know, the run of the agent
//! and the member. So it proves nothing on another connection, for another member, or to somebody who has seen it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use hmac::digest::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use super::message::{BootId, Hello};
use crate::address::ServerAddress;

/// The least length of a secret, in bytes.
const SHORTEST_SECRET: usize = 16;

/// The greatest length of a token's name, in bytes.
const LONGEST_NAME: usize = 64;

/// What the proof is of, before everything else that it is of.
const CONTEXT: &[u8] = b"cmap-reverse/1 agent speaks for member";

/// 32 bytes that TLS exports by [`EXPORTER_LABEL`](super::EXPORTER_LABEL): the same at both ends of one connection, and of no other.
#[derive(Clone, Copy)]
pub struct ChannelBinding(pub [u8; 32]);

/// A secret that an agent and an application share, and its name, which is none.
#[derive(Clone)]
pub struct Token {
    name: String,
    /// The digest of the secret, as long as a key should be.
    key: Zeroizing<[u8; 32]>,
}

/// A token cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It needs a name, or a shorter one.
    #[error("the name of a token has 1 to 64 bytes, not {0}; name it after its agent")]
    Name(usize),
    /// Its secret could be guessed.
    #[error("the secret of a token has at least 16 bytes, not {0}; make one by `openssl rand -hex 32`")]
    Secret(usize),
}

/// A proof by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberProof {
    /// The token's name.
    pub token: String,
    /// The HMAC.
    pub code: [u8; 32],
}

/// Why a proof does not hold. For the application's log: the agent hears that it is unauthorized, and no more.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofError {
    /// There is no proof, and no certificate in its place.
    #[error("the agent of {member} shows no token; give it one, or a certificate")]
    Missing {
        /// The member that it wants to speak for.
        member: ServerAddress,
    },
    /// No token has this name.
    #[error("the agent of {member} shows the token {token:?}, which is not known here; add it, or correct the agent's")]
    UnknownToken {
        /// The member that it wants to speak for.
        member: ServerAddress,
        /// The name.
        token: String,
    },
    /// The token is known, and its secret another one; or the proof is of another connection.
    #[error("the agent of {member} does not have the secret of the token {token:?}; give both sides the same")]
    WrongSecret {
        /// The member that it wants to speak for.
        member: ServerAddress,
        /// The token's name.
        token: String,
    },
    /// The token is good for others.
    #[error("the token {token:?} is not good for {member}; add the member to the token, or correct the agent's")]
    OtherMember {
        /// The member that it wants to speak for.
        member: ServerAddress,
        /// The token's name.
        token: String,
    },
}

crate::error_text::readable_debug!(TokenError, ProofError);

impl Token {
    /// A token.
    ///
    /// # Errors
    /// The name or the secret is too short or too long.
    pub fn new(name: &str, secret: &[u8]) -> Result<Self, TokenError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(TokenError::Name(name.len()));
        }
        if secret.len() < SHORTEST_SECRET {
            return Err(TokenError::Secret(secret.len()));
        }
        Ok(Self { name: name.to_string(), key: Zeroizing::new(Sha256::digest(secret).into()) })
    }

    /// Proves on one connection that this run of an agent may speak for a member.
    pub fn prove(&self, binding: &ChannelBinding, member: &ServerAddress, boot: BootId) -> MemberProof {
        let code = mac(&self.key, binding, member, boot).finalize().into_bytes().into();
        MemberProof { token: self.name.clone(), code }
    }
}

impl core::fmt::Debug for Token {
    /// Without the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Token").field("name", &self.name).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for ChannelBinding {
    /// Without the bytes, which are a secret of the connection.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ChannelBinding(..)")
    }
}

/// The tokens that an application knows, and the members that each is good for.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    known: Vec<(Token, Vec<ServerAddress>)>,
}

impl Tokens {
    /// None: only certificates let agents in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token that is good for these members. One of the same name is replaced.
    pub fn add(&mut self, token: Token, members: impl IntoIterator<Item = ServerAddress>) {
        self.known.retain(|(known, _)| known.name != token.name);
        self.known.push((token, members.into_iter().collect()));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a greeting proves what it claims, on the connection that it came by. Takes as long for a token that is not known as
    /// for one that is.
    ///
    /// # Errors
    /// It does not.
    pub fn verify(&self, hello: &Hello, binding: &ChannelBinding) -> Result<(), ProofError> {
        let member = hello.member.clone();
        let Some(MemberProof { token, code }) = &hello.proof else { return Err(ProofError::Missing { member }) };
        let known = self.known.iter().find(|(known, _)| known.name == *token);
        let key = known.map_or(&[0; 32], |(known, _)| &*known.key);
        // Compared in constant time.
        let holds = mac(key, binding, &member, hello.boot).verify_slice(code).is_ok();
        let token = token.clone();
        match known {
            None => Err(ProofError::UnknownToken { member, token: super::short(&token) }),
            Some(_) if !holds => Err(ProofError::WrongSecret { member, token }),
            Some((_, members)) if !members.contains(&member) => Err(ProofError::OtherMember { member, token }),
            Some(_) => Ok(()),
        }
    }
}

fn mac(key: &[u8; 32], binding: &ChannelBinding, member: &ServerAddress, boot: BootId) -> Hmac<Sha256> {
    // Padded as RFC 2104 says, so that no step can fail.
    let mut block = Key::<Hmac<Sha256>>::default();
    for (byte, of_key) in block.iter_mut().zip(key) {
        *byte = *of_key;
    }
    let mut mac = Hmac::<Sha256>::new(&block);
    block.as_mut_slice().zeroize();
    mac.update(CONTEXT);
    mac.update(&binding.0);
    mac.update(&boot.started.to_be_bytes());
    mac.update(&boot.random.to_be_bytes());
    // The last one, so that its length need not be told.
    mac.update(member.to_string().as_bytes());
    mac
}
