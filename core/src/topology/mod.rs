//! Several servers: which one an operation is sent to.
//!
//! | file | what it holds |
//! |---|---|
//! | `selection` | which servers suit an operation, and the one that is chosen |

pub use crate::server::{TopologyDescription, TopologyType};
