//! The cryptography under rustls: aws-lc-rs, or ring where only `tls-ring` is on.

#[cfg(feature = "tls")]
pub(super) use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
#[cfg(not(feature = "tls"))]
pub(super) use rustls::crypto::ring::{default_provider, sign::any_supported_type};
