//! One socket's protocol, from its creation to its use.
//!
//! [`Socks`] leads through a proxy, where one is on the way. [`Establish`] makes an open socket usable: hello, compression,
//! authentication. It becomes a [`Connection`], which takes one command at a time and reads its reply. None of them knows a
//! socket: bytes to send are appended to the caller's buffer, and the caller hands in the bytes received.
//! `examples/blocking.rs` is the whole loop over `std::net`.

#[cfg(any(feature = "auth", feature = "wire"))]
pub mod auth;
mod establish_error;
mod socks;

#[cfg(feature = "wire")]
mod client_metadata;
#[cfg(feature = "wire")]
mod command_traits;
#[cfg(feature = "wire")]
mod connection_options;
#[cfg(feature = "wire")]
mod environment;
#[cfg(feature = "wire")]
mod establish;
#[cfg(feature = "wire")]
mod exchange;
#[cfg(feature = "wire")]
mod hello;
#[cfg(feature = "wire")]
mod outline;
#[cfg(feature = "wire")]
mod sasl_login;

#[cfg(feature = "wire")]
pub(crate) use self::command_traits::Effect;
#[cfg(feature = "wire")]
pub(crate) use self::hello::first_hello;
#[cfg(feature = "wire")]
pub use self::{
    client_metadata::{ClientMetadata, MetadataError},
    command_traits::Addition,
    connection_options::ConnectionOptions,
    environment::Environment,
    establish::{Establish, Progress},
    exchange::{Command, CommandError, Connection, ProtocolError, Reply},
    hello::{Description, Peer, Role},
    outline::{ClientField, Outline},
    sasl_login::{SaslLogin, SaslProgress},
};
pub use establish_error::{EstablishError, Fault, Phase, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
pub use socks::Socks;
