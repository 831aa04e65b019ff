//! What a test does to its server: by a connection beside the tested pool, or at the server itself, if it is virtual.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::options::ClientOptions;
use cmap_core::pool::ServiceId;
use cmap_runtime::bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use cmap_runtime::{Connection, Pool, Runtime};
use tokio::sync::Mutex;

use crate::suites::cmap::format::{NetworkMode, OperationError};

/// What a test does to its server, beside the tested pool.
pub(in crate::suites::cmap::engine) enum Control<R: Runtime> {
    /// By a connection that no fail point of a test hits: open before the first one is set.
    Connection(Box<Mutex<Connection<R>>>),
    /// At the server itself, which is virtual, as the network is.
    Virtual(Arc<dyn VirtualServer>),
}

/// A server that obeys the test.
pub(in crate::suites::cmap::engine) trait VirtualServer: Send + Sync {
    /// Runs a command of an administrator, at every service behind it.
    fn run_command(&self, command: &RawDocument) -> Result<(), String>;

    /// The ids of the services behind a load balancer, in the order in which connections reach them.
    fn service_ids(&self) -> Vec<ServiceId>;

    /// Breaks the connection with this number of the server's, or lets it be silent.
    fn fail(&self, connection: i64, failed: OperationError);

    /// Closes the connection with this number of the server's.
    fn hang_up(&self, connection: i64);

    /// Changes the network before it.
    fn set_network(&self, mode: NetworkMode, latency: Option<Duration>);
}

impl<R: Runtime> Control<R> {
    /// Connects to the server that `options` name.
    pub(super) async fn connect(options: &ClientOptions) -> Result<Self, cmap_runtime::Error> {
        let mut options = options.clone();
        options.app_name = Some("spec-runner".into());
        let pool = Pool::with_options(options).await?;
        pool.ready();
        // Good for as long as it is held, also when its pool is gone.
        Ok(Self::Connection(Box::new(Mutex::new(pool.check_out().await?))))
    }

    /// Sets the fail point, or ends it, by `command`.
    pub(super) async fn configure(&self, command: &RawDocument) -> Result<(), String> {
        match self {
            Self::Connection(connection) => {
                let sent = connection.lock().await.run_command("admin", command).await;
                sent.map(drop).map_err(|error| format!("the fail point was not set: {error}"))
            }
            Self::Virtual(server) => server.run_command(command),
        }
    }

    /// Makes the next operation on the connection with this number of the server's fail; returns the command to send.
    pub(super) async fn let_fail(
        &self,
        connection: Result<i64, String>,
        failed: OperationError,
    ) -> Result<RawDocumentBuf, String> {
        match self {
            Self::Connection(_) => self.configure(&failing_ping(failed)).await.map(|()| rawdoc! { "ping": 1 }),
            // Refused by every server.
            Self::Virtual(_) if failed == OperationError::Other => Ok(rawdoc! { "noSuchCommand": 1 }),
            Self::Virtual(server) => {
                server.fail(connection?, failed);
                Ok(rawdoc! { "ping": 1 })
            }
        }
    }

    /// The virtual server.
    pub(super) fn virtual_server(&self) -> Result<&dyn VirtualServer, String> {
        match self {
            Self::Connection(_) => Err("only a virtual server does that".into()),
            Self::Virtual(server) => Ok(&**server),
        }
    }
}

/// The number that the server gave to a connection.
pub(super) fn number_at_server<R: Runtime>(connection: &Connection<R>) -> Result<i64, String> {
    let number = connection.description().and_then(|server| server.connection_id);
    number.ok_or_else(|| "the server did not number the connection".into())
}

/// How long a server does not answer that lets an operation time out.
const SILENCE_MS: i32 = 5000;

/// The command that makes the next `ping` fail like that.
fn failing_ping(failed: OperationError) -> RawDocumentBuf {
    let mut data = rawdoc! { "failCommands": ["ping"] };
    match failed {
        OperationError::Network => data.append(cstr!("closeConnection"), true),
        OperationError::Timeout => {
            data.append(cstr!("blockConnection"), true);
            data.append(cstr!("blockTimeMS"), SILENCE_MS);
        }
        // UnknownError.
        OperationError::Other => data.append(cstr!("errorCode"), 8),
    }
    rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data }
}
