//! SCRAM (RFC 5802, RFC 7677): both sides prove to each other that they know a password, and neither sends it.
//!
//! ```text
//! client                                           server
//!   n,,n=user,r=C                      ------->              client-first
//!                                      <-------    r=CS,s=salt,i=count      server-first
//!   [keys from password, salt, count: slow]
//!   c=biws,r=CS,p=proof                ------->              client-final
//!                                      <-------    v=signature              server-final
//! ```
//!
//! Both proofs are HMACs of the same *auth message*: client-first without its `n,,`, server-first, and client-final
//! without its proof, joined by commas. So no side can be led into a conversation that the other did not have.
//!
//! The files: [`client`] is the machine; [`keys`] turns a password into keys, and [`cache`] keeps keys and the waiters
//! for them; [`message`] reads the server's messages; [`hash`] is the arithmetic, which needs the feature `auth`.

pub(super) mod cache;
pub(super) mod client;
#[cfg(feature = "auth")]
mod hash;
#[cfg(not(feature = "auth"))]
#[path = "no_hash.rs"]
mod hash;
mod keys;
mod message;
mod nonce;
#[cfg(feature = "auth")]
mod password;
#[cfg(feature = "auth")]
pub(super) mod server;
#[cfg(feature = "auth")]
pub(super) mod stored;

pub use hash::ScramHash;
pub use keys::{DeriveKey, DerivedKeys, KeyId};
pub use nonce::Nonce;

/// The fewest iterations a client accepts (AUTH-13).
pub const MIN_ITERATIONS: u32 = 4096;

/// The most iterations a client accepts, unless its options allow another number.
///
/// The server chooses the number and the client does the work, so a hostile server could keep it busy for an hour.
/// MongoDB's defaults are 10,000 and 15,000. This leaves room for thirty times that, and takes some 100 milliseconds.
pub const MAX_ITERATIONS: u32 = 500_000;

/// The longest message that is read, in bytes. Real ones have about two hundred; the bound limits how much is decoded,
/// hashed and quoted.
pub const MAX_MESSAGE: usize = 4096;

/// The header of a client without channel binding (AUTH-14), and what client-final says about it.
const GS2_HEADER: &str = "n,,";
const GS2_HEADER_BASE64: &str = "biws";
