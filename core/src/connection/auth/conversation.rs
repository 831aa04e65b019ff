//! One authentication on one connection, whatever the mechanism: a first command, then replies and steps in turn.

use alloc::string::String;
use core::{fmt, mem};

use super::error::{AuthError, AuthMisuse, LoginError, ServerFault};
use super::login::{certificate_user, user_and_password};
use super::plain;
use super::scram::client::ScramClient;
use super::scram::{DeriveKey, DerivedKeys, Nonce, ScramHash};
use super::secret::Payload;
use crate::options::{Credential, Mechanism};

/// The client's side of a conversation.
///
/// Send the command that [`first`](Self::first) describes, hand each reply in, and do what the [`Step`] says. After
/// [`Step::Done`] the connection is authenticated; after an error it must be closed.
#[derive(Debug)]
pub struct Conversation {
    mechanism: Mechanism,
    state: State,
}

/// The command that opens a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<'a> {
    /// `saslStart`, on the credential's source.
    SaslStart {
        /// The field `mechanism`.
        mechanism: Mechanism,
        /// The field `payload`.
        payload: &'a Payload,
        /// Whether `options: { skipEmptyExchange: true }` goes along (AUTH-15).
        skip_empty_exchange: bool,
    },
    /// `authenticate` on `$external`, whose `mechanism` is MONGODB-X509 (AUTH-19).
    Authenticate {
        /// The field `user`, sent only if present.
        user: Option<&'a str>,
    },
}

/// A server's reply that says `ok: 1`. Of a reply to `authenticate`, both fields are ignored.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    /// The field `payload`.
    pub payload: &'a [u8],
    /// The field `done`.
    pub done: bool,
}

/// The next step of a conversation.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// Find or derive these keys, then call [`Conversation::handle_keys`].
    Derive(DeriveKey),
    /// Send a `saslContinue` with this payload, which may be empty (AUTH-15), and hand in its reply.
    Send(Payload),
    /// Authenticated.
    Done,
}

#[derive(Debug)]
enum State {
    Scram(ScramClient),
    Plain { payload: Payload, ended: bool },
    X509 { user: Option<String>, ended: bool },
}

impl Conversation {
    /// A conversation by `mechanism`: the credential's own or, if that names none, the negotiated one. Only SCRAM uses
    /// the nonce and the limit on iterations; the other mechanisms ignore them.
    pub(super) fn new(
        mechanism: Mechanism,
        credential: &Credential,
        nonce: Nonce,
        max_iterations: u32,
    ) -> Result<Self, LoginError> {
        let state = match mechanism {
            Mechanism::ScramSha1 | Mechanism::ScramSha256 => {
                State::scram(ScramHash::of(mechanism)?, credential, nonce, max_iterations)?
            }
            Mechanism::Plain => State::Plain { payload: plain::payload(credential)?, ended: false },
            Mechanism::MongoDbX509 => {
                State::X509 { user: certificate_user(credential)?.map(String::from), ended: false }
            }
            Mechanism::Gssapi | Mechanism::MongoDbAws | Mechanism::MongoDbOidc => {
                return Err(LoginError::NotCarriedOut { mechanism });
            }
        };
        Ok(Self { mechanism, state })
    }

    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The command that opens the conversation. Until a reply is handed in, it may be sent again (AUTH-10).
    pub fn first(&self) -> First<'_> {
        let sasl_start =
            |payload, skip_empty_exchange| First::SaslStart { mechanism: self.mechanism, payload, skip_empty_exchange };
        match &self.state {
            State::Scram(client) => sasl_start(client.first(), true),
            State::Plain { payload, .. } => sasl_start(payload, false),
            State::X509 { user, .. } => First::Authenticate { user: user.as_deref() },
        }
    }

    /// A reply came to the command sent last.
    pub fn handle_reply(&mut self, reply: Reply<'_>) -> Result<Step, AuthError> {
        let (ended, is_last) = match &mut self.state {
            State::Scram(client) => return client.handle_reply(reply),
            State::Plain { ended, .. } => (ended, reply.done),
            // `authenticate` is answered by success alone: its reply has neither `payload` nor `done`.
            State::X509 { ended, .. } => (ended, true),
        };
        if mem::replace(ended, true) {
            return Err(AuthMisuse::UnexpectedReply.into());
        }
        if is_last { Ok(Step::Done) } else { Err(ServerFault::NotEnded.into()) }
    }

    /// Goes on with the keys that [`Step::Derive`] asked for.
    pub fn handle_keys(&mut self, keys: &DerivedKeys) -> Result<Step, AuthError> {
        match &mut self.state {
            State::Scram(client) => client.handle_keys(keys),
            State::Plain { .. } | State::X509 { .. } => Err(AuthMisuse::UnexpectedKeys.into()),
        }
    }
}

impl State {
    fn scram(hash: ScramHash, credential: &Credential, nonce: Nonce, max_iterations: u32) -> Result<Self, LoginError> {
        let (username, password) = user_and_password(credential)?;
        ScramClient::new(hash, username, password, nonce, max_iterations).map(Self::Scram)
    }
}

impl<'a> Reply<'a> {
    /// The reply to a SASL command.
    pub fn new(payload: &'a [u8], done: bool) -> Self {
        Self { payload, done }
    }

    /// The reply to `authenticate`.
    pub const AUTHENTICATED: Self = Self { payload: &[], done: true };
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("done", &self.done).finish_non_exhaustive()
    }
}
