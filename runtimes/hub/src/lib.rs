//! A hub that shares a few MongoDB connections between many processes.
//!
//! Official drivers connect to it unchanged, by `loadBalanced=true`. Between a reply and the next command the connection upstream
//! is free for others; a cursor or a transaction keeps to its server, and to no connection.
//!
//! | room | content |
//! |---|---|
//! | [`protocol`] | what can be decided without sockets: bytes to commands, owners, rules, queue |
//! | [`users`], [`config`] | the files that operators write |
//! | [`hub`] | sockets, the client upstream, status pages: on tokio |
//!
//! `docs/hub.md` in the repository says how to set it up, and what it does not do.

#![forbid(unsafe_code)]

pub mod config;
pub mod hub;
pub mod protocol;
pub mod users;
