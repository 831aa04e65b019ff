//! Mechanisms of one's own: the client's side of SASL, brought by a user's crate.
//!
//! MONGODB-AWS and GSSAPI need signatures or libraries that are not part of this one. A crate that has them
//! implements [`SaslMechanism`]; everything around it stays here: the commands, their order, limits and errors.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use super::secret::{Payload, SecretBytes};
#[cfg(feature = "wire")]
use crate::ErrorChain;
#[cfg(feature = "wire")]
use crate::connection::{EstablishError, Fault, Phase};
use crate::options::Credential;

/// A mechanism of authentication by `saslStart` and `saslContinue`, without I/O. One value serves all connections of a client.
///
/// What has to be fetched, such as a token, is fetched beforehand and elsewhere: a conversation takes what is there when it
/// begins. A server may ask for another login while a connection is open (code 391): then another conversation begins (OIDC-1). `core/examples/own_mechanism.rs` is a whole one, with its server.
///
/// ```
/// use cmap_core::connection::auth::{Login, MechanismError, Payload, SaslConversation, SaslMechanism, SaslStep};
///
/// /// A token is all that the server asks for.
/// #[derive(Debug)]
/// struct Token(&'static str);
///
/// struct Shown(&'static str);
///
/// impl SaslMechanism for Token {
///     fn name(&self) -> &str {
///         "EXAMPLE-TOKEN"
///     }
///
///     fn begin(&self, _login: &Login<'_>) -> Result<Box<dyn SaslConversation>, MechanismError> {
///         Ok(Box::new(Shown(self.0)))
///     }
/// }
///
/// impl SaslConversation for Shown {
///     fn first(&mut self) -> Result<Payload, MechanismError> {
///         Ok(Payload::from(self.0.as_bytes().to_vec()))
///     }
///
///     fn handle_reply(&mut self, payload: &[u8], _done: bool) -> Result<SaslStep, MechanismError> {
///         if payload.is_empty() { Ok(SaslStep::Done) } else { Err("the server asked for more than the token".into()) }
///     }
/// }
/// ```
pub trait SaslMechanism: fmt::Debug + Send + Sync {
    /// Its name in `saslStart`.
    fn name(&self) -> &str;

    /// Begins a conversation: of a new connection before anything is sent, or of one whose server asks for another login.
    ///
    /// # Errors
    /// It cannot begin: a token is missing, say. The text is shown to users and must hold no secret.
    fn begin(&self, login: &Login<'_>) -> Result<Box<dyn SaslConversation>, MechanismError>;
}

/// One conversation with the server.
pub trait SaslConversation: Send {
    /// The payload of `saslStart`. Called once.
    ///
    /// # Errors
    /// There is nothing to send. The text is shown to users and must hold no secret.
    fn first(&mut self) -> Result<Payload, MechanismError>;

    /// The server answered with this payload, and says whether it is `done`. It must be for the client to be
    /// [`Done`](SaslStep::Done), and the client may send nothing more once it is.
    ///
    /// # Errors
    /// The server did not prove itself, or broke the protocol. The text is shown to users and must hold no secret.
    fn handle_reply(&mut self, payload: &[u8], done: bool) -> Result<SaslStep, MechanismError>;
}

/// What a conversation may use.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Login<'a> {
    /// The user, if the options have one.
    pub credential: Option<&'a Credential>,
    /// Random bytes of the operating system, for this conversation alone.
    pub random: &'a [u8; 24],
}

/// The client's next step.
#[derive(Debug)]
pub enum SaslStep {
    /// Send a `saslContinue` with this payload, which may be empty.
    Send(Payload),
    /// The login is over.
    Done,
}

/// Why a mechanism failed: any error, which displays as a sentence for people.
pub type MechanismError = Box<dyn Error + Send + Sync>;

#[cfg(feature = "wire")]
impl<'a> Login<'a> {
    pub(crate) fn new(credential: Option<&'a Credential>, random: &'a [u8; 24]) -> Self {
        Self { credential, random }
    }
}

/// The bytes of a message; they must be in a vector that never grew, or its former buffers keep parts of them.
impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(SecretBytes::from_vec(bytes))
    }
}

/// A mechanism's error as the failure of its connection.
#[cfg(feature = "wire")]
pub(crate) fn failed(mechanism: &dyn SaslMechanism, error: &MechanismError) -> EstablishError {
    let text = alloc::format!("{}: {}", mechanism.name(), ErrorChain(&**error));
    EstablishError::new(Phase::Authenticate, Fault::Other, text)
}
