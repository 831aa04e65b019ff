//! Authentication: what client and server say to each other before a connection may be used.
//!
//! Conversations are machines without I/O, and deal in the payloads of SASL: the commands around them (`hello`,
//! `saslStart`, `saslContinue`, `authenticate`) are the caller's to write and read. Randomness comes in as a [`Nonce`];
//! the one slow step comes out as a value, [`DeriveKey`], to be run where nobody waits for it.
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
//! # let stored = StoredCredential::new(ScramHash::Sha256, "user", &"pencil".into(), b"salt", 4096).unwrap();
//! # // A server in the place of the network: the first payload meets a login, the second its verifier.
//! # let mut verifier = None;
//! # let mut exchange = |payload: &Payload| match verifier.take() {
//! #     None => {
//! #         let login = ScramLogin::parse(payload.as_bytes()).unwrap();
//! #         let (next, reply) = login.challenge(&Nonce::from_random([2; 24]), &stored);
//! #         verifier = Some(next);
//! #         (reply, false)
//! #     }
//! #     Some(verifier) => (ScramVerifier::verify(verifier, payload.as_bytes()).unwrap(), true),
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
//! Whatever a server sends is bounded before it costs anything: the length of a message by [`MAX_MESSAGE`], the work of
//! a derivation by [`MIN_ITERATIONS`] (AUTH-13) and the client's maximum, usually [`MAX_ITERATIONS`], and the work of all
//! derivations by the [`KeyCache`], which lets one run at a time. `Done` after SCRAM means that the server proved that it
//! knows the password (AUTH-16). Passwords and keys are wiped from memory when they are dropped, and no `Debug`
//! or error shows them. Two places are out of reach: what SASLprep's crate holds while it prepares a password that is
//! not plain ASCII, and the copies that a caller makes.
//!
//! # The server's side
//!
//! With the feature `sim`, `ScramLogin`, `ScramVerifier`, `StoredCredential` and `PlainLogin` serve servers that are
//! embedded in tests.

mod conversation;
mod error;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod fuzz;
mod login;
mod negotiation;
mod plain;
#[cfg(feature = "sim")]
mod plain_login;
mod scram;
mod secret;
#[cfg(test)]
mod tests;

pub use conversation::{Conversation, First, Reply, Step};
#[cfg(feature = "sim")]
pub use error::ClientFault;
pub use error::{AuthError, AuthMisuse, LoginError, Malformed, Message, ServerFault};
pub use negotiation::{Authentication, Opening};
#[cfg(feature = "sim")]
pub use plain_login::PlainLogin;
pub use scram::cache::{KeyCache, Lookup, Ticket, Waiter};
#[cfg(feature = "sim")]
pub use scram::server::{ScramLogin, ScramVerifier};
#[cfg(feature = "sim")]
pub use scram::stored::StoredCredential;
pub use scram::{DeriveKey, DerivedKeys, KeyId, MAX_ITERATIONS, MAX_MESSAGE, MIN_ITERATIONS, Nonce, ScramHash};
pub use secret::Payload;
