//! TLS against a server's machine in memory: which servers the client trusts, its errors, and that no way of cutting
//! bytes into pieces makes a difference.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy's allowances for tests do not reach their helpers"
)]

mod tls {
    mod authority;
    mod broken;
    mod client_certificate;
    mod handshake;
    mod noise;
    mod peer;
    mod pieces;
    mod relaxed;
    mod trust;
    mod unwaited;
}
