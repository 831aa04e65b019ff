//! One socket's protocol, from its creation to its use.
//!
//! [`Establish`] makes an open socket usable: hello, compression, authentication. It becomes a [`Connection`], which
//! takes one command at a time and reads its reply. Neither knows a socket: bytes to send are appended to the caller's
//! buffer, and the caller hands in the bytes received. `examples/blocking.rs` is the whole loop over `std::net`.

#[cfg(feature = "auth")]
pub mod auth;
mod establish_error;

#[cfg(all(feature = "wire", feature = "auth"))]
mod client_metadata;
#[cfg(all(feature = "wire", feature = "auth"))]
mod connection_options;
#[cfg(all(feature = "wire", feature = "auth"))]
mod establish;
#[cfg(all(feature = "wire", feature = "auth"))]
mod exchange;
#[cfg(all(feature = "wire", feature = "auth"))]
mod hello;

#[cfg(all(feature = "wire", feature = "auth"))]
pub(crate) use self::hello::first_hello;
#[cfg(all(feature = "wire", feature = "auth"))]
pub use self::{
    client_metadata::{ClientMetadata, Environment, MetadataError},
    connection_options::ConnectionOptions,
    establish::{Establish, Progress},
    exchange::{Command, CommandError, Connection, ProtocolError, Reply},
    hello::{Description, Role},
};
pub use establish_error::{EstablishError, Fault, Phase, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
