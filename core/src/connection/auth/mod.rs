//! Authentication: the messages of client and server before a connection may be used.
//!
//! Conversations are machines without I/O, and deal in the payloads of SASL: the caller writes and reads the commands
//! around them (`hello`, `saslStart`, `saslContinue`, `authenticate`). Randomness comes in as a [`Nonce`]; the one slow
//! step comes out as a value, [`DeriveKey`], to be run where it blocks no other work.
//!
//! # A connection's authentication, step by step
//!
//! 1. [`Authentication::new`] with the [`Credential`](crate::options::Credential) and a nonce; put its two fields into
//!    the hello.
//! 2. [`Authentication::handle_hello`] with the hello's reply; it gives a [`Conversation`], and a step if the server
//!    accepted the speculation. Otherwise send the conversation's first command and hand in the reply.
//! 3. Do what each [`Step`] says, until it says `Done`.
//!
//! ```
//! use std::sync::Arc;
//! use cmap_core::connection::auth::*;
//! use cmap_core::options::Credential;
//!
//! # // A server in the place of the network, which has heard all of this before.
//! # let mut server = [
//! #     ("n,,n=user,r=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB", "r=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBserver,s=c2FsdA==,i=4096", false),
//! #     (
//! #         "c=biws,r=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBserver,p=A0WQFivZcBYL+dRvLlz987HxTS47LJjQXRvfsDOWRoU=",
//! #         "v=LtGTKfTpvK8pbu5XmP6Xba0DMcQImJ1r53WjKPv7QnA=",
//! #         true,
//! #     ),
//! # ]
//! # .into_iter();
//! # let mut exchange = |payload: &Payload| {
//! #     let (expected, reply, done) = server.next().unwrap();
//! #     assert_eq!(payload.as_bytes(), expected.as_bytes());
//! #     (reply, done)
//! # };
//! let mut cache = KeyCache::default(); // one for each client, shared by its connections
//! let credential = Arc::new(Credential::new("user", "pencil".into(), "admin"));
//! let random = [1; 24]; // from the operating system
//!
//! // 1. The hello.
//! let authentication = Authentication::new(credential, Nonce::from_random(random), MAX_ITERATIONS)?;
//! assert_eq!(authentication.sasl_supported_mechs().as_deref(), Some("admin.user"));
//! // 2. Its reply. This server lists its mechanisms and ignores the speculation.
//! let opening = authentication.handle_hello(Some(["SCRAM-SHA-1", "SCRAM-SHA-256"]), None)?;
//! let (mut conversation, mut step) = match opening {
//!     Opening::Continue(conversation, step) => (conversation, step),
//!     Opening::Start(mut conversation) => {
//!         let First::SaslStart { payload, .. } = conversation.first() else { unreachable!() };
//!         let (payload, done) = exchange(payload);
//!         let step = conversation.handle_reply(Reply::new(payload.as_bytes(), done))?;
//!         (conversation, step)
//!     }
//! };
//! // 3. The rest.
//! loop {
//!     step = match step {
//!         Step::Derive(request) => {
//!             let waiter = cache.enter(&request);
//!             let keys = match cache.look_up(&waiter) {
//!                 Lookup::Ready(keys) => keys,
//!                 Lookup::Derive(ticket) => {
//!                     let keys = request.run(); // on a thread of its own
//!                     cache.finish(ticket, &keys);
//!                     keys
//!                 }
//!                 Lookup::Wait => unreachable!("nobody else uses this cache"),
//!             };
//!             cache.leave(waiter);
//!             conversation.handle_keys(&keys)?
//!         }
//!         Step::Send(payload) => {
//!             let (payload, done) = exchange(&payload);
//!             conversation.handle_reply(Reply::new(payload.as_bytes(), done))?
//!         }
//!         Step::Done => break,
//!     };
//! }
//! # Ok::<(), AuthError>(())
//! ```
//!
//! # Trust
//!
//! Everything a server sends is bounded before it costs anything: the length of a message by [`MAX_MESSAGE`], the work
//! of a derivation by [`MIN_ITERATIONS`] (AUTH-13) and the client's maximum, usually [`MAX_ITERATIONS`], and the work
//! of all derivations by the [`KeyCache`], which lets one run at a time. `Done` after SCRAM means that the server
//! proved that it knows the password (AUTH-16). Passwords and keys are wiped from memory when they are dropped, and no
//! `Debug` or error shows them. Two copies are out of reach: the one that SASLprep's crate holds while it prepares a
//! password that is not plain ASCII, and those that a caller makes.
//!
//! [`ScramLogin`], [`ScramVerifier`] and [`StoredKeys`] are the server's side of SCRAM.

mod conversation;
mod error;
mod login;
mod mechanism;
mod negotiation;
#[cfg(feature = "wire")]
mod oidc;
mod plain;
mod scram;
mod secret;
#[cfg(test)]
#[cfg(feature = "auth")]
mod tests;

pub use conversation::{Conversation, First, Reply, Step};
pub use error::{AuthError, AuthMisuse, LoginError, Malformed, Message, ServerFault};
#[cfg(feature = "wire")]
pub(crate) use mechanism::failed;
pub use mechanism::{Login, MechanismError, SaslConversation, SaslMechanism, SaslStep};
pub use negotiation::{Authentication, Opening};
#[cfg(feature = "wire")]
pub use oidc::AccessToken;
#[cfg(feature = "wire")]
pub(crate) use oidc::payload as token_payload;
pub use scram::cache::{KeyCache, Lookup, Ticket, Waiter};
#[cfg(feature = "auth")]
pub use scram::server::{ClientFault, ScramLogin, ScramVerifier};
#[cfg(feature = "auth")]
pub use scram::stored::{StoredKeys, StoredKeysError};
pub use scram::{DeriveKey, DerivedKeys, KeyId, MAX_ITERATIONS, MAX_MESSAGE, MIN_ITERATIONS, Nonce, ScramHash};
pub use secret::Payload;
