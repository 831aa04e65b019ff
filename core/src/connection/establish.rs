//! From an open socket to a usable connection: hello, compression, authentication (CMAP-23).
//!
//! A small linear machine. Send the bytes that [`Establish::write_to`] gives, hand in the bytes received, and do what
//! [`Progress`] says. Every error names its phase, which decides what it means for the pool (CMAP-50, CMAP-51).

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::{fmt, mem};

use bson::{RawBson, RawDocument, RawDocumentBuf};
use zeroize::{Zeroize, Zeroizing};

use super::auth::{AccessToken, AuthError, Authentication, Conversation, DeriveKey, DerivedKeys, Nonce, Opening, Step};
use super::exchange::{Command, Connection};
use super::hello::{self, Description};
use super::sasl_login::{SaslLogin, SaslProgress, conversation_id, refused, sasl_reply, source};
use super::{ConnectionOptions, EstablishError, Fault, Phase};
use crate::service_id::ServiceId;
use crate::wire::{CommandReply, CompressionError};

/// What a message may have beyond its document: header, `$db`, the server API.
const OVERHEAD: usize = 1024;

/// A connection that is being established, without its socket.
pub struct Establish {
    options: Arc<ConnectionOptions>,
    connection: Connection,
    stage: Stage,
    /// The reply to the hello, until it is taken.
    hello_reply: Option<RawDocumentBuf>,
    /// The bytes to send; they may hold a password (AUTH-20).
    out: Zeroizing<Vec<u8>>,
}

/// The next step of an establishment.
#[derive(Debug)]
#[must_use]
pub enum Progress {
    /// Send the bytes that [`Establish::write_to`] gives, and hand in the bytes received.
    Exchange,
    /// Find or derive these keys, where it blocks no other work, then call [`Establish::handle_keys`].
    Derive(DeriveKey),
    /// Get an access token where it blocks no other work, then call [`Establish::handle_token`]. If one was used before, the server
    /// has refused it: forget it first (OIDC-3). Only MONGODB-OIDC asks for one.
    Token,
    /// Nothing: take the connection by [`Establish::finish`].
    Established,
}

enum Stage {
    /// The hello was sent.
    Hello(Login),
    /// A command of the conversation was sent, or its keys are being derived.
    Authenticating {
        conversation: Conversation,
        id: RawBson,
    },
    /// A command of a login that can be repeated was sent, or its token is asked for.
    LoggingIn(SaslLogin),
    Established,
    Failed,
}

/// What follows the hello.
enum Login {
    Nothing,
    BuiltIn(Box<Authentication>),
    Sasl(SaslLogin),
}

impl Establish {
    /// Begins with a hello. `random` are 24 bytes from the operating system, never used twice.
    ///
    /// # Errors
    /// The credential cannot be used with its mechanism.
    pub fn new(options: Arc<ConnectionOptions>, random: [u8; 24]) -> Result<Self, EstablishError> {
        let login = Login::begin(&options, random)?;
        let hello = hello::command(&options, login.built_in(), login.speculative());
        let mut establish = Self {
            connection: Connection::new(options.server_api),
            options,
            stage: Stage::Hello(login),
            hello_reply: None,
            // Room for what most authentications send.
            out: Zeroizing::new(Vec::with_capacity(4096)),
        };
        establish.send(Phase::Hello, "admin", hello)?;
        Ok(establish)
    }

    /// The phase that an I/O error at this moment belongs to.
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Hello(_) => Phase::Hello,
            Stage::Authenticating { .. } | Stage::LoggingIn(_) | Stage::Established | Stage::Failed => {
                Phase::Authenticate
            }
        }
    }

    /// The service behind a load balancer, as soon as the hello has named it: report it to the pool before any later
    /// result.
    pub fn service_id(&self) -> Option<ServiceId> {
        self.connection.description().service_id
    }

    /// The reply to the hello, once, as soon as there is one from a server that this client can talk to. Report it to
    /// the server's machine (MON-5).
    pub fn take_hello_reply(&mut self) -> Option<RawDocumentBuf> {
        self.hello_reply.take()
    }

    /// Appends the bytes to send. They may hold a password: wipe the buffer once it is sent.
    pub fn write_to(&mut self, out: &mut Vec<u8>) {
        make_room(out, self.out.len());
        out.extend_from_slice(&self.out);
        self.out.zeroize();
    }

    /// Bytes came from the server.
    ///
    /// # Errors
    /// The server refused, or broke the protocol. Close the socket.
    pub fn handle_bytes(&mut self, mut input: &[u8]) -> Result<Progress, EstablishError> {
        let phase = self.phase();
        let reply = match self.connection.read_greeting(&mut input) {
            Ok(None) => return Ok(Progress::Exchange),
            Ok(Some(reply)) => Ok(reply.body.to_owned()),
            Err(error) => Err(broken(phase, &error.to_string())),
        };
        let progress = reply.and_then(|reply| self.handle_reply(phase, &reply));
        let progress = match progress {
            Ok(_) if !input.is_empty() => Err(broken(phase, "the server sent more than it was asked for")),
            progress => progress,
        };
        progress.inspect_err(|_| self.stage = Stage::Failed)
    }

    /// The keys that [`Progress::Derive`] asked for.
    ///
    /// # Errors
    /// They were not asked for, or are those of another request.
    pub fn handle_keys(&mut self, keys: &DerivedKeys) -> Result<Progress, EstablishError> {
        match mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Authenticating { mut conversation, id } => {
                let step = conversation.handle_keys(keys)?;
                self.take(step, conversation, id)
            }
            Stage::Hello(_) | Stage::LoggingIn(_) | Stage::Established | Stage::Failed => {
                Err(broken(Phase::Authenticate, "keys were handed in that the conversation did not ask for"))
            }
        }
    }

    /// The access token that [`Progress::Token`] asked for.
    ///
    /// # Errors
    /// It was not asked for.
    pub fn handle_token(&mut self, token: &AccessToken) -> Result<Progress, EstablishError> {
        match mem::replace(&mut self.stage, Stage::Failed) {
            Stage::LoggingIn(mut login) => {
                let progress = login.handle_token(token)?;
                self.follow(login, progress)
            }
            Stage::Hello(_) | Stage::Authenticating { .. } | Stage::Established | Stage::Failed => {
                Err(broken(Phase::Authenticate, "a token was handed in that the login did not ask for"))
            }
        }
    }

    /// The connection, once it is established; `None` before that.
    pub fn finish(self) -> Option<Connection> {
        matches!(self.stage, Stage::Established).then(|| self.connection.greeted())
    }

    fn handle_reply(&mut self, phase: Phase, reply: &RawDocument) -> Result<Progress, EstablishError> {
        let stage = mem::replace(&mut self.stage, Stage::Failed);
        if let Stage::LoggingIn(mut login) = stage {
            let progress = login.handle_reply(reply)?;
            return self.follow(login, progress);
        }
        if let Some(error) = CommandReply::read(reply).failure() {
            return Err(refused(&self.options, phase, &error));
        }
        match stage {
            Stage::Hello(login) => self.handle_hello(reply, login),
            Stage::Authenticating { mut conversation, id } => {
                let (step, id) = advance(&mut conversation, reply, id)?;
                self.take(step, conversation, id)
            }
            Stage::LoggingIn(_) | Stage::Established | Stage::Failed => {
                Err(broken(phase, "the server sent more than it was asked for"))
            }
        }
    }

    fn handle_hello(&mut self, reply: &RawDocument, login: Login) -> Result<Progress, EstablishError> {
        let (description, offers) =
            Description::read(reply, &self.options).map_err(|text| broken(Phase::Hello, &text))?;
        let is_arbiter = description.is_arbiter;
        let agreed = description.compressors.first().copied();
        let compression = self.options.compressors.iter().find(|compression| Some(compression.id()) == agreed).copied();
        if let Some(id) = agreed
            && !id.is_built_in()
        {
            return Err(broken(Phase::Hello, &CompressionError::NotBuiltIn(id).to_string()));
        }
        self.connection.describe(description, compression);
        self.hello_reply = Some(reply.to_owned());
        // AUTH-2 would skip authentication, but `arbiterOnly` is the word of a server that has proven nothing.
        if is_arbiter && !matches!(login, Login::Nothing) {
            return Err(broken(Phase::Authenticate, "an arbiter has no users; connect without credentials"));
        }
        let login = match login {
            Login::Nothing => {
                self.stage = Stage::Established;
                return Ok(Progress::Established);
            }
            Login::Sasl(mut login) => {
                if offers.speculative.as_deref().is_some_and(|reply| login.handle_speculation(reply)) {
                    return self.follow(login, SaslProgress::Done);
                }
                let progress = login.start()?;
                return self.follow(login, progress);
            }
            Login::BuiltIn(login) => login,
        };
        let mechanisms = offers.mechanisms.as_ref().map(|names| names.iter().map(|name| name.as_str()));
        let speculative = offers.speculative.as_deref();
        match login.handle_hello(mechanisms, speculative.map(sasl_reply))? {
            Opening::Continue(conversation, step) => {
                let id = speculative.and_then(conversation_id).unwrap_or(RawBson::Int32(1));
                self.take(step, conversation, id)
            }
            Opening::Start(conversation) => {
                let command = hello::first_command(conversation.first());
                self.stage = Stage::Authenticating { conversation, id: RawBson::Int32(1) };
                self.send_to_source(command)?;
                Ok(Progress::Exchange)
            }
        }
    }

    /// Carries out the step that the conversation asks for.
    fn take(&mut self, step: Step, conversation: Conversation, id: RawBson) -> Result<Progress, EstablishError> {
        match step {
            Step::Done => {
                self.stage = Stage::Established;
                Ok(Progress::Established)
            }
            Step::Derive(request) => {
                self.stage = Stage::Authenticating { conversation, id };
                Ok(Progress::Derive(request))
            }
            Step::Send(payload) => {
                let command = hello::next_command(&id, &payload);
                self.stage = Stage::Authenticating { conversation, id };
                self.send_to_source(command)?;
                Ok(Progress::Exchange)
            }
        }
    }

    /// Carries out the step that a login asks for.
    fn follow(&mut self, login: SaslLogin, progress: SaslProgress) -> Result<Progress, EstablishError> {
        match progress {
            SaslProgress::Done => {
                self.stage = Stage::Established;
                Ok(Progress::Established)
            }
            SaslProgress::Token => {
                self.stage = Stage::LoggingIn(login);
                Ok(Progress::Token)
            }
            SaslProgress::Send(command) => {
                self.stage = Stage::LoggingIn(login);
                self.send_to_source(command)?;
                Ok(Progress::Exchange)
            }
        }
    }

    fn send_to_source(&mut self, command: RawDocumentBuf) -> Result<(), EstablishError> {
        let options = Arc::clone(&self.options);
        self.send(Phase::Authenticate, source(options.credential.as_deref()), command)
    }

    fn send(&mut self, phase: Phase, database: &str, command: RawDocumentBuf) -> Result<(), EstablishError> {
        make_room(&mut self.out, command.as_bytes().len() + OVERHEAD);
        let sent = self.connection.send(&mut self.out, &Command::new(database, &command));
        // PLAIN's payload is the password, and MONGODB-OIDC's a token.
        command.into_bytes().zeroize();
        sent.map_err(|error| EstablishError::new(phase, Fault::Other, error.to_string()))
    }
}

impl Login {
    fn begin(options: &Arc<ConnectionOptions>, random: [u8; 24]) -> Result<Self, EstablishError> {
        if let Some(login) = SaslLogin::begin(options, &random)? {
            return Ok(Self::Sasl(login));
        }
        let Some(credential) = &options.credential else { return Ok(Self::Nothing) };
        let nonce = Nonce::from_random(random);
        let login = Authentication::new(Arc::clone(credential), nonce, options.max_scram_iterations);
        Ok(Self::BuiltIn(Box::new(login.map_err(AuthError::from)?)))
    }

    fn built_in(&self) -> Option<&Authentication> {
        match self {
            Self::BuiltIn(authentication) => Some(authentication),
            Self::Nothing | Self::Sasl(_) => None,
        }
    }

    fn speculative(&self) -> Option<RawDocumentBuf> {
        if let Self::Sasl(login) = self { login.speculative() } else { None }
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hello(_) => "Hello",
            Self::Authenticating { .. } => "Authenticating",
            Self::LoggingIn(_) => "LoggingIn",
            Self::Established => "Established",
            Self::Failed => "Failed",
        })
    }
}

// The bytes to send may hold a password, so they are not shown.
impl fmt::Debug for Establish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, connection, stage, hello_reply: _, out: _ } = self;
        let mut shown = f.debug_struct("Establish");
        shown.field("options", options).field("connection", connection).field("stage", stage).finish_non_exhaustive()
    }
}

/// Makes room for so many bytes more. A buffer that grows by itself leaves its smaller self behind, perhaps with a password in it.
fn make_room(buffer: &mut Vec<u8>, more: usize) {
    if buffer.capacity() - buffer.len() < more {
        let mut larger = Vec::with_capacity(buffer.len() + more);
        larger.extend_from_slice(buffer);
        mem::replace(buffer, larger).zeroize();
    }
}

fn broken(phase: Phase, text: &str) -> EstablishError {
    EstablishError::new(phase, Fault::Other, text)
}

/// Hands a reply to the conversation; returns its step and the id that the server gave the conversation.
fn advance(conversation: &mut Conversation, reply: &RawDocument, known: RawBson) -> Result<(Step, RawBson), AuthError> {
    Ok((conversation.handle_reply(sasl_reply(reply))?, conversation_id(reply).unwrap_or(known)))
}
