//! The options of a monitor.

use alloc::sync::Arc;
use core::time::Duration;

use crate::connection::{ClientMetadata, ConnectionOptions};
use crate::options::{ClientOptions, ServerMonitoringMode};

/// The shortest interval between two checks of a server (MON-2).
pub const MIN_HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);

/// Options of a monitor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MonitorOptions {
    /// The contents of each connection's first hello. A credential is ignored: monitors never authenticate.
    pub connection: Arc<ConnectionOptions>,
    /// `heartbeatFrequencyMS`: from the end of one check to the next, at least [`MIN_HEARTBEAT_FREQUENCY`]. Default 10 s.
    pub heartbeat_frequency: Duration,
    /// `connectTimeoutMS`: for connecting, TLS included, and again for each reply; zero = none. Default 10 s (MON-1).
    pub connect_timeout: Duration,
    /// Whether a server that can is asked to report changes at once (MON-6).
    pub streams: bool,
}

impl MonitorOptions {
    /// The defaults. Streams, unless functions are run as a service where this program runs.
    pub fn new(metadata: ClientMetadata) -> Self {
        let streams = metadata.environment.name.is_none();
        Self {
            connection: Arc::new(ConnectionOptions::new(metadata)),
            heartbeat_frequency: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            streams,
        }
    }

    /// Those of a client.
    pub fn of_client(options: &ClientOptions, mut metadata: ClientMetadata) -> Self {
        metadata.app_name.clone_from(&options.app_name);
        let default = Self::new(metadata);
        let mut connection = ConnectionOptions::clone(&default.connection);
        connection.server_api = options.server_api;
        let streams = match options.server_monitoring_mode {
            None | Some(ServerMonitoringMode::Auto) => default.streams,
            Some(ServerMonitoringMode::Stream) => true,
            Some(ServerMonitoringMode::Poll) => false,
        };
        Self {
            connection: Arc::new(connection),
            heartbeat_frequency: options.heartbeat_frequency.unwrap_or(default.heartbeat_frequency),
            connect_timeout: options.connect_timeout.unwrap_or(default.connect_timeout),
            streams,
        }
    }

    /// How long a reply is awaited that the server may delay; `None` = for ever (MON-8).
    pub(super) fn awaited_timeout(&self) -> Option<Duration> {
        (self.connect_timeout > Duration::ZERO).then(|| self.connect_timeout.saturating_add(self.heartbeat_frequency))
    }
}
