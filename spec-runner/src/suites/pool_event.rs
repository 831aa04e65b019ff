//! The fields of a pool's events, as test files name them.

use core::time::Duration;

use cmap_core::pool::Event;
use cmap_core::pool::{Cause, ServiceId};
use serde_json::{Map, Value, json};

/// All fields of an event of the pool at `address`. `name_of` is the test's name for a service; others keep their ids.
pub(crate) fn fields<'n>(
    event: &Event,
    address: &str,
    name_of: impl Fn(ServiceId) -> Option<&'n str>,
) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| {
        fields.insert(key.into(), value);
    };
    set("address", json!(address));
    match event {
        Event::PoolCreated { options } => {
            let options = options.set_by_user().map(|(name, value)| (name.to_owned(), json!(value)));
            set("options", Value::Object(options.collect()));
        }
        Event::PoolCleared { service_id, interrupt_in_use_connections } => {
            if let Some(id) = service_id {
                let name = name_of(*id).map_or_else(|| id.to_string(), str::to_owned);
                set("serviceId", json!(name));
            }
            set("interruptInUseConnections", json!(interrupt_in_use_connections));
        }
        Event::ConnectionCreated { connection_id } | Event::ConnectionCheckedIn { connection_id } => {
            set("connectionId", json!(connection_id));
        }
        Event::ConnectionReady { connection_id, duration }
        | Event::ConnectionCheckedOut { connection_id, duration, .. } => {
            set("connectionId", json!(connection_id));
            set("duration", millis(*duration));
        }
        Event::ConnectionClosed { connection_id, reason, error } => {
            set("connectionId", json!(connection_id));
            set("reason", json!(reason));
            if let Some(error) = error {
                set("error", json!(Cause::of(&**error).to_string()));
            }
        }
        Event::ConnectionCheckOutFailed { reason, error, duration, .. } => {
            set("reason", json!(reason));
            set("error", json!(Cause::of(&**error).to_string()));
            set("duration", millis(*duration));
        }
        Event::PoolReady | Event::PoolClosed | Event::ConnectionCheckOutStarted { .. } | _ => {}
    }
    fields
}

fn millis(duration: Duration) -> Value {
    json!(duration.as_secs_f64() * 1000.0)
}
