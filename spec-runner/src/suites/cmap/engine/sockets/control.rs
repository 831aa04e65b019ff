//! The connection that sets a server's fail points: beside the tested pool, and open before the first one is set.

use cmap_core::options::ClientOptions;
use cmap_core::sim::{ConfigureFailPoint, Mode};
use cmap_runtime::bson::{RawDocumentBuf, serialize_to_raw_document_buf};
use cmap_runtime::{Connection, Pool, Runtime};
use serde_json::Value;
use tokio::sync::Mutex;

/// A way to the server that no fail point of a test hits.
pub(super) struct Control<R: Runtime> {
    connection: Mutex<Connection<R>>,
}

impl<R: Runtime> Control<R> {
    /// Connects to the server that `options` name.
    pub(super) async fn connect(options: &ClientOptions) -> Result<Self, cmap_runtime::Error> {
        let mut options = options.clone();
        options.app_name = Some("spec-runner".into());
        let pool = Pool::with_options(options).await?;
        pool.ready();
        // Good for as long as it is held, also when its pool is gone.
        Ok(Self { connection: Mutex::new(pool.check_out().await?) })
    }

    /// Sets the fail point, or ends it.
    pub(super) async fn configure(&self, fail_point: &ConfigureFailPoint) -> Result<(), String> {
        let command = command(fail_point)?;
        let sent = self.connection.lock().await.run_command("admin", command).await;
        sent.map(drop).map_err(|error| format!("the fail point was not set: {error}"))
    }
}

/// The command as servers take it: without nulls.
fn command(fail_point: &ConfigureFailPoint) -> Result<RawDocumentBuf, String> {
    let Ok(Value::Object(mut command)) = serde_json::to_value(fail_point) else {
        return Err("the fail point cannot be sent".into());
    };
    if fail_point.mode == Mode::Off {
        command.remove("data");
    } else if let Some(Value::Object(data)) = command.get_mut("data") {
        data.retain(|_, value| !value.is_null());
    }
    serialize_to_raw_document_buf(&command).map_err(|error| format!("the fail point cannot be sent: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_not_sent() {
        let fail_point = serde_json::json!({
            "configureFailPoint": "failCommand",
            "mode": { "times": 2 },
            "data": { "failCommands": ["ping"], "errorCode": 8 },
        });
        let fail_point: ConfigureFailPoint = serde_json::from_value(fail_point).unwrap();

        let command = command(&fail_point).unwrap();

        let data = command.get_document("data").unwrap();
        assert!(data.get("appName").unwrap().is_none() && data.get("errorCode").unwrap().is_some());
        assert_eq!(command.iter().next().unwrap().unwrap().0.as_str(), "configureFailPoint");
    }
}
