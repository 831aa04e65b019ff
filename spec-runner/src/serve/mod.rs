//! The embedded server behind real sockets.

pub mod certificates;
pub mod tls;
