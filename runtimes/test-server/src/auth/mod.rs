//! The server's side of logging in by a password: SCRAM and PLAIN, message by message.
//!
//! ```text
//! client                                           server
//!   n,,n=user,r=C                      ------->    ScramLogin::parse
//!                                      <-------    r=CS,s=salt,i=count      ScramLogin::challenge
//!   c=biws,r=CS,p=proof                ------->    ScramVerifier::verify
//!                                      <-------    v=signature
//! ```
//!
//! It shares neither arithmetic nor parser with the client's side, `cmap_core::connection::auth`, so that a mistake in
//! one of them cannot hide in the other. The commands around the messages belong to the room above.

mod error;
mod hash;
mod message;
mod plain;
mod scram;
mod stored;
#[cfg(test)]
mod tests;

pub use error::{ClientFault, Malformed, Message};
pub use plain::PlainLogin;
pub use scram::{ScramLogin, ScramVerifier};
pub use stored::StoredCredential;
