//! MongoDB connections on real sockets: everything that the adapters for tokio, async-std and smol share.

pub mod tls;
