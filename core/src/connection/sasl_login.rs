//! A login that can be repeated while the connection is open: MONGODB-OIDC's, or that of a mechanism of the user's own (OIDC-1).
//!
//! A machine that deals in commands and replies. [`Establish`](super::Establish) runs it behind the hello. When a server asks for
//! another login (code 391), the connection's owner begins a new one and runs its commands on the connection.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;

use bson::{RawBson, RawDocument, RawDocumentBuf};

use super::auth::{self, AccessToken, AuthError, LoginError, Reply, SaslConversation, SaslStep, ServerFault};
use super::hello;
use super::{ConnectionOptions, EstablishError, Fault, Phase};
use crate::options::{Credential, Mechanism, Secret};
use crate::wire::{CommandReply, ServerError};

/// The code by which a server refuses a login, without a reason.
const AUTHENTICATION_FAILED: i32 = 18;
/// The server's words for that code, which say no more than the code.
const NO_REASON: &str = "Authentication failed.";
/// The advice for that code.
const CREDENTIAL_ADVICE: &str = "check the user name, the password, authSource and authMechanism";
/// The advice for that code where a token was refused.
const TOKEN_ADVICE: &str = "check the access token's issuer, audience and expiry, and the server's identity providers";

/// The login of one connection, by SASL.
pub struct SaslLogin {
    options: Arc<ConnectionOptions>,
    state: State,
}

/// The next step of a login.
#[must_use]
pub enum SaslProgress {
    /// Run this command on the database [`source`](SaslLogin::source), and hand in its reply. It may hold a token: wipe it once it
    /// is sent.
    Send(RawDocumentBuf),
    /// Get an access token where it blocks no other work, then call [`SaslLogin::handle_token`]. If one was used before, the server
    /// has refused it: forget it first (OIDC-3).
    Token,
    /// The server has accepted the login.
    Done,
}

enum State {
    /// A conversation by the user's own mechanism.
    Own {
        conversation: Box<dyn SaslConversation>,
        id: RawBson,
    },
    /// A token is there, and was not sent on its own yet.
    Ready(Secret),
    /// A token is asked for; whether it is the second one.
    Asked {
        again: bool,
    },
    /// A token was sent; whether another one may be asked for if it is refused (OIDC-4).
    Sent {
        replaceable: bool,
    },
    Ended,
}

impl SaslLogin {
    /// Begins the login that the options ask for; `None` if they ask for none that can be repeated. `random` are 24 bytes from the
    /// operating system, never used twice.
    ///
    /// # Errors
    /// The user's mechanism cannot begin, or the credential cannot be used.
    pub fn begin(options: &Arc<ConnectionOptions>, random: &[u8; 24]) -> Result<Option<Self>, EstablishError> {
        let credential = options.credential.as_deref();
        let state = if let Some(mechanism) = options.mechanism.as_deref() {
            let conversation = mechanism.begin(&auth::Login::new(credential, random));
            let conversation = conversation.map_err(|error| auth::failed(mechanism, &error))?;
            State::Own { conversation, id: RawBson::Int32(1) }
        } else if let Some(credential) = credential.filter(|it| it.mechanism == Some(Mechanism::MongoDbOidc)) {
            credential.check().map_err(|error| AuthError::from(LoginError::from(error)))?;
            options.token.clone().map_or(State::Asked { again: false }, State::Ready)
        } else {
            return Ok(None);
        };
        Ok(Some(Self { options: Arc::clone(options), state }))
    }

    /// The database of the login's commands.
    pub fn source(&self) -> &str {
        source(self.options.credential.as_deref())
    }

    /// The first command.
    ///
    /// # Errors
    /// The user's mechanism has nothing to send.
    pub fn start(&mut self) -> Result<SaslProgress, EstablishError> {
        let options = Arc::clone(&self.options);
        match &mut self.state {
            State::Own { conversation, .. } => {
                let Some(mechanism) = options.mechanism.as_deref() else { return Err(out_of_turn()) };
                let payload = conversation.first().map_err(|error| auth::failed(mechanism, &error))?;
                Ok(SaslProgress::Send(hello::sasl_start(mechanism.name(), &payload)))
            }
            State::Ready(token) => {
                let command = with_token(token);
                self.state = State::Sent { replaceable: true };
                Ok(SaslProgress::Send(command))
            }
            State::Asked { .. } => Ok(SaslProgress::Token),
            State::Sent { .. } | State::Ended => Err(out_of_turn()),
        }
    }

    /// The token that [`SaslProgress::Token`] asked for.
    ///
    /// # Errors
    /// It was not asked for.
    pub fn handle_token(&mut self, token: &AccessToken) -> Result<SaslProgress, EstablishError> {
        let State::Asked { again } = self.state else { return Err(out_of_turn()) };
        let replaceable = !again && matches!(token, AccessToken::Cached(_));
        self.state = State::Sent { replaceable };
        Ok(SaslProgress::Send(with_token(token.secret())))
    }

    /// The reply to the last command, whether or not it is a refusal.
    ///
    /// # Errors
    /// The server refused, or broke the protocol. Close the connection.
    pub fn handle_reply(&mut self, reply: &RawDocument) -> Result<SaslProgress, EstablishError> {
        if let Some(error) = CommandReply::read(reply).failure() {
            return self.handle_refusal(&error);
        }
        match core::mem::replace(&mut self.state, State::Ended) {
            State::Own { conversation, id } => self.follow_own(conversation, reply, id),
            State::Sent { .. } if sasl_reply(reply).done => Ok(SaslProgress::Done),
            State::Sent { .. } => Err(AuthError::from(ServerFault::NotEnded).into()),
            State::Ready(_) | State::Asked { .. } | State::Ended => Err(out_of_turn()),
        }
    }

    /// A command was refused: with a token that may have expired another one helps (OIDC-4).
    ///
    /// # Errors
    /// The login has failed.
    pub fn handle_refusal(&mut self, error: &ServerError) -> Result<SaslProgress, EstablishError> {
        if matches!(self.state, State::Sent { replaceable: true }) && error.code == Some(AUTHENTICATION_FAILED) {
            self.state = State::Asked { again: true };
            return Ok(SaslProgress::Token);
        }
        self.state = State::Ended;
        Err(refused(&self.options, Phase::Authenticate, error))
    }

    /// The first command as a part of the hello, if a token is at hand (OIDC-6).
    pub(super) fn speculative(&self) -> Option<RawDocumentBuf> {
        let State::Ready(token) = &self.state else { return None };
        let mut command = with_token(token);
        command.append(bson::cstr!("db"), self.source());
        Some(command)
    }

    /// The hello's answer to it: whether the login is over. Otherwise it starts as if nothing had been sent.
    pub(super) fn handle_speculation(&mut self, reply: &RawDocument) -> bool {
        let is_over = matches!(self.state, State::Ready(_)) && sasl_reply(reply).done;
        if is_over {
            self.state = State::Ended;
        }
        is_over
    }

    /// Hands a reply to the user's own mechanism. Both sides have to agree on the end.
    fn follow_own(
        &mut self,
        mut conversation: Box<dyn SaslConversation>,
        reply: &RawDocument,
        id: RawBson,
    ) -> Result<SaslProgress, EstablishError> {
        let Some(mechanism) = self.options.mechanism.as_deref() else { return Err(out_of_turn()) };
        let id = conversation_id(reply).unwrap_or(id);
        let Reply { payload, done } = sasl_reply(reply);
        let step = conversation.handle_reply(payload, done).map_err(|error| auth::failed(mechanism, &error))?;
        match (step, done) {
            (SaslStep::Done, true) => Ok(SaslProgress::Done),
            (SaslStep::Send(payload), false) => {
                let command = hello::next_command(&id, &payload);
                self.state = State::Own { conversation, id };
                Ok(SaslProgress::Send(command))
            }
            (SaslStep::Done, false) => Err(AuthError::from(ServerFault::NotEnded).into()),
            (SaslStep::Send(_), true) => Err(AuthError::from(ServerFault::EndedEarly).into()),
        }
    }
}

/// The database of a login. Only a mechanism of the user's own does without a credential, and then without a database.
pub(super) fn source(credential: Option<&Credential>) -> &str {
    credential.map_or("$external", |credential| credential.source.as_str())
}

/// The error for a command that the server refused in `phase`.
pub(super) fn refused(options: &ConnectionOptions, phase: Phase, error: &ServerError) -> EstablishError {
    let message = match (phase, error.code) {
        (Phase::Authenticate, Some(AUTHENTICATION_FAILED)) => refused_login(options, error),
        _ => error.to_string(),
    };
    EstablishError::new(phase, Fault::Server { code: error.code }, message)
        .with_topology_version(error.topology_version)
        .with_code_name(error.code_name.clone())
        .with_server_labels(error.labels.clone())
}

/// Says whose login was refused, and what to check.
fn refused_login(options: &ConnectionOptions, error: &ServerError) -> String {
    let credential = options.credential.as_deref();
    let user = credential.and_then(|credential| Some((credential.username.as_deref()?, &credential.source)));
    let of_user =
        user.map_or_else(String::new, |(user, database)| alloc::format!(" of {user:?} in the database {database:?}"));
    let has_token = credential.is_some_and(|it| it.mechanism == Some(Mechanism::MongoDbOidc));
    let advice = if has_token && options.mechanism.is_none() { TOKEN_ADVICE } else { CREDENTIAL_ADVICE };
    match error.message.as_str() {
        NO_REASON => alloc::format!("the server refused the login{of_user} ({AUTHENTICATION_FAILED}); {advice}"),
        _ => alloc::format!("the server refused the login{of_user}: {error}; {advice}"),
    }
}

fn with_token(token: &Secret) -> RawDocumentBuf {
    hello::sasl_start(Mechanism::MongoDbOidc.name(), &auth::token_payload(token))
}

/// The fields of a reply that a conversation needs. A reply that does not say `done` is not the last one.
pub(super) fn sasl_reply(reply: &RawDocument) -> Reply<'_> {
    let payload = reply.get_binary("payload").map(|binary| binary.bytes).unwrap_or_default();
    Reply::new(payload, reply.get_bool("done").unwrap_or_default())
}

pub(super) fn conversation_id(reply: &RawDocument) -> Option<RawBson> {
    reply.get("conversationId").ok().flatten().map(RawBson::from)
}

fn out_of_turn() -> EstablishError {
    EstablishError::new(Phase::Authenticate, Fault::Other, "the login was called out of turn")
}

// Tokens and the user's conversation are not shown.
impl fmt::Debug for SaslLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Own { .. } => "Own",
            State::Ready(_) => "Ready",
            State::Asked { .. } => "Asked",
            State::Sent { .. } => "Sent",
            State::Ended => "Ended",
        };
        f.debug_struct("SaslLogin").field("state", &state).finish_non_exhaustive()
    }
}

// A command may hold a token.
impl fmt::Debug for SaslProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send(_) => "Send(..)",
            Self::Token => "Token",
            Self::Done => "Done",
        })
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::connection::ClientMetadata;

    fn login(token: Option<&str>) -> SaslLogin {
        let mut options = ConnectionOptions::new(ClientMetadata::new("Linux"));
        options.credential = Some(Arc::new(Credential::oidc(None)));
        options.token = token.map(Secret::from);
        SaslLogin::begin(&Arc::new(options), &[7; 24]).unwrap().unwrap()
    }

    /// The token that a command carries.
    fn sent(progress: SaslProgress) -> String {
        let SaslProgress::Send(command) = progress else { panic!("{progress:?}") };
        assert_eq!(command.get_str("mechanism").unwrap(), "MONGODB-OIDC");
        let payload = command.get_binary("payload").unwrap().bytes;
        RawDocument::from_bytes(payload).unwrap().get_str("jwt").unwrap().into()
    }

    fn refusal(code: i32) -> RawDocumentBuf {
        rawdoc! { "ok": 0, "code": code, "errmsg": "Authentication failed." }
    }

    fn accepted() -> RawDocumentBuf {
        rawdoc! { "ok": 1, "conversationId": 1, "done": true }
    }

    #[test]
    fn a_cached_token_that_is_refused_is_replaced_once_oidc_4() {
        let mut login = login(Some("old"));
        assert_eq!(sent(login.start().unwrap()), "old");

        assert!(matches!(login.handle_reply(&refusal(18)), Ok(SaslProgress::Token)));
        let next = login.handle_token(&AccessToken::Cached("newer".into())).unwrap();

        assert_eq!(sent(next), "newer");
        let error = login.handle_reply(&refusal(18)).unwrap_err();
        assert!(error.to_string().contains("the server refused the login (18); check the access token"), "{error}");
    }

    #[test]
    fn a_token_that_was_just_fetched_is_not_replaced_oidc_5() {
        let mut login = login(None);
        assert!(matches!(login.start(), Ok(SaslProgress::Token)));
        assert_eq!(sent(login.handle_token(&AccessToken::Fetched("new".into())).unwrap()), "new");

        assert!(login.handle_reply(&refusal(18)).is_err());
        assert!(login.handle_token(&AccessToken::Fetched("newer".into())).is_err(), "nobody has asked");
    }

    #[test]
    fn another_code_than_18_keeps_the_token_oidc_4() {
        let mut login = login(Some("old"));
        let _ = login.start().unwrap();

        let error = login.handle_reply(&refusal(20)).unwrap_err();

        assert_eq!(error.fault, Fault::Server { code: Some(20) });
    }

    #[test]
    fn a_token_is_all_that_the_server_asks_for_oidc_7() {
        let mut login = login(None);
        let _ = login.start().unwrap();
        let _ = login.handle_token(&AccessToken::Fetched("new".into())).unwrap();
        assert!(matches!(login.handle_reply(&accepted()), Ok(SaslProgress::Done)));
        assert!(login.handle_reply(&accepted()).is_err(), "it has ended");

        let mut endless = self::login(Some("old"));
        let _ = endless.start().unwrap();
        let not_done = rawdoc! { "ok": 1, "conversationId": 1, "done": false };
        assert!(endless.handle_reply(&not_done).unwrap_err().to_string().contains("did not end"));
    }

    #[test]
    fn only_a_token_at_hand_goes_along_with_the_hello_oidc_6() {
        let mut with_token = login(Some("old"));

        assert!(login(None).speculative().is_none());
        assert_eq!(sent(SaslProgress::Send(with_token.speculative().unwrap())), "old");
        assert!(!with_token.handle_speculation(&rawdoc! { "done": false }));
        assert_eq!(sent(with_token.start().unwrap()), "old", "as if nothing had been sent");
        let mut lucky = login(Some("old"));
        assert!(lucky.handle_speculation(&accepted()));
    }

    #[test]
    fn nothing_shows_a_token() {
        let shown = alloc::format!("{:?} {:?}", login(Some("hunter2")), AccessToken::Cached("hunter2".into()));

        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
