//! A subscriber of the crate `tracing` that keeps the records of a client.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the fields of the records.
#[derive(Clone, Default)]
pub(crate) struct Listener {
    pub(crate) records: Arc<Mutex<Vec<Fields>>>,
}

/// The fields of a record by their names, as text.
pub(crate) type Fields = BTreeMap<&'static str, String>;

/// The fields of one record, as text.
struct Reader(Fields);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cmap::") && *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let (level, target) = (event.metadata().level().to_string(), event.metadata().target().to_owned());
        let mut reader = Reader(Fields::from([("level", level), ("target", target)]));
        event.record(&mut reader);
        self.records.lock().unwrap().push(reader.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}
