//! The options of a server, beside those of its pool and its monitor.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::options::ClientOptions;

/// Options of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerOptions {
    /// `directConnection`: talk to the server whatever it is (SDAM-18). Default false.
    pub direct_connection: bool,
    /// `replicaSet`: the set it must belong to. Default any.
    pub replica_set: Option<String>,
    /// `serverSelectionTimeoutMS`: how long a check-out waits for the server to become usable. Default 30 s (URI-12).
    pub server_selection_timeout: Duration,
}

impl ServerOptions {
    /// Those of a client.
    pub fn of_client(options: &ClientOptions) -> Self {
        let default = Self::default();
        Self {
            direct_connection: options.direct_connection.unwrap_or_default(),
            replica_set: options.replica_set.clone(),
            server_selection_timeout: options.server_selection_timeout.unwrap_or(default.server_selection_timeout),
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { direct_connection: false, replica_set: None, server_selection_timeout: Duration::from_secs(30) }
    }
}
