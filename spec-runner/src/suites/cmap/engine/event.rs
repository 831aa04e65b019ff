//! Events as the files of the CMAP format have them.

use cmap_core::pool::Event;
use cmap_core::pool::ServiceId;
use serde_json::{Map, Value, json};

use crate::suites::cmap::format::Case;
use crate::suites::pool_event;

/// An event of the pool at `address` as JSON, with all its fields. `name_of` is the test's name for a service.
pub(super) fn to_json<'n>(
    event: &Event,
    address: &str,
    case: &Case,
    name_of: impl Fn(ServiceId) -> Option<&'n str>,
) -> Value {
    let mut fields = Map::from_iter([("type".to_owned(), json!(event.name()))]);
    fields.extend(pool_event::fields(event, address, name_of));
    if let Some(Value::Object(options)) = fields.get_mut("options") {
        options.extend(case.pool_options.beyond_the_pool().map(|(name, value)| (name.to_owned(), value)));
    }
    Value::Object(fields)
}
