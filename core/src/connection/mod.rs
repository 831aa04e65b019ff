//! One socket's protocol, from its creation to its use. So far: authentication, and what can go wrong before a
//! connection is ready.

#[cfg(feature = "auth")]
pub mod auth;
mod establish_error;

pub use establish_error::{EstablishError, Fault, Phase, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
