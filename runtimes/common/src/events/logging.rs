//! The log messages as records of the crate `tracing` (feature `tracing`).
//!
//! | target | records | level |
//! |---|---|---|
//! | `cmap::connection` | the pool's (LOG-10) | DEBUG |
//! | `cmap::topology` | those of servers, monitors and the topology (LOG-14) | DEBUG; WARN where no servers are left (TOP-36) |
//! | `cmap::server_selection` | selections (SEL-41) | DEBUG; INFO for one that waits (SEL-42) |
//! | `cmap::command` | commands (LOG-16) | DEBUG |
//!
//! A record's `message` is the specification's unstructured sentence. Its other fields are those of the structured form, by
//! the specification's names, and `event`, which has the text of the structured `message`; fields that do not apply are left
//! out (LOG-6). A record that is not read is never put together (LOG-9). Documents are cut at the length that the variable
//! `MONGODB_LOG_MAX_DOCUMENT_LENGTH` names when the client is made (LOG-5).

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use cmap_core::address::ServerAddress;
use cmap_core::log::{LogRecord, LogValue, MaxDocumentLength, TopologyId};
use cmap_core::options::Warning;
use cmap_core::topology::{SelectionDetail, SelectionEventKind, TopologyEvent};
use tracing::{Level, Value};

use super::event::Event;
use crate::watch::UseReport;

/// The target of the pool's records.
const CONNECTION: &str = "cmap::connection";

/// The target of the records of server and monitor.
const TOPOLOGY: &str = "cmap::topology";

/// The target of the records of commands.
const COMMAND: &str = "cmap::command";

/// The target of the records of selections.
const SELECTION: &str = "cmap::server_selection";

/// The log of one client or pool. Its records have a number of their own.
pub(crate) struct Log {
    topology: TopologyId,
    max_document_length: MaxDocumentLength,
    was_read: AtomicBool,
    /// The most that was read of selections.
    selection_detail: AtomicU8,
}

impl Default for Log {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let variable = std::env::var("MONGODB_LOG_MAX_DOCUMENT_LENGTH").ok();
        // LOG-3: a value that is not a length counts as unset.
        let length = variable.and_then(|text| text.parse().ok()).map(MaxDocumentLength);
        Self {
            topology: TopologyId(NEXT.fetch_add(1, Ordering::Relaxed)),
            max_document_length: length.unwrap_or_default(),
            was_read: AtomicBool::new(false),
            selection_detail: AtomicU8::new(SelectionDetail::None as u8),
        }
    }
}

/// Writes a record. `tracing` fixes the names of fields when a program is compiled: of the listed fields the record has those
/// of the [`LogRecord`].
macro_rules! write_record {
    ($level:ident, $target:expr, $event:expr, $record:expr, [$($field:ident)*]) => {
        tracing::$level!(
            target: $target,
            event = $event,
            $($field = $record.field(stringify!($field)).map(value),)*
            "{}", $record
        )
    };
}

impl Log {
    /// Whether the records are read, as far as can be known when a client is made or subscribed to: on this thread, or
    /// on another one that has asked before.
    pub(crate) fn is_read(&self) -> bool {
        let is_read =
            tracing::enabled!(target: CONNECTION, Level::DEBUG) || tracing::enabled!(target: TOPOLOGY, Level::DEBUG);
        self.was_read.fetch_or(is_read, Ordering::Relaxed) || is_read
    }

    /// How much of selections is read. Far more programs read level INFO, which costs nothing while none waits.
    pub(crate) fn selection_detail(&self) -> SelectionDetail {
        let detail = if tracing::enabled!(target: SELECTION, Level::DEBUG) {
            SelectionDetail::All
        } else if tracing::enabled!(target: SELECTION, Level::INFO) {
            SelectionDetail::Waiting
        } else {
            SelectionDetail::None
        };
        match self.selection_detail.fetch_max(detail as u8, Ordering::Relaxed).max(detail as u8) {
            0 => SelectionDetail::None,
            1 => SelectionDetail::Waiting,
            _ => SelectionDetail::All,
        }
    }

    pub(crate) fn record(&self, server: &ServerAddress, event: &Event) {
        let name = event.name();
        match event {
            Event::Pool(event) if tracing::enabled!(target: CONNECTION, Level::DEBUG) => {
                let record = LogRecord::new(server, event);
                write_record!(debug, CONNECTION, name, record, [
                    serverHost serverPort serviceId driverConnectionId reason error durationMS
                    maxIdleTimeMS minPoolSize maxPoolSize maxConnecting waitQueueTimeoutMS
                ]);
            }
            Event::Server(event) if tracing::enabled!(target: TOPOLOGY, Level::DEBUG) => {
                let record = LogRecord::of_server(self.topology, server, event, self.max_document_length);
                if let Some(record) = record {
                    write_record!(debug, TOPOLOGY, name, record, [
                        topologyId serverHost serverPort awaited driverConnectionId serverConnectionId durationMS reply failure
                    ]);
                }
            }
            Event::Topology(event @ TopologyEvent::ServersMissing) => {
                let record = LogRecord::of_topology(self.topology, event);
                write_record!(warn, TOPOLOGY, name, record, [topologyId]);
            }
            Event::Topology(event) if tracing::enabled!(target: TOPOLOGY, Level::DEBUG) => {
                let record = LogRecord::of_topology(self.topology, event);
                write_record!(debug, TOPOLOGY, name, record, [
                    topologyId previousDescription newDescription ignoredRecords failure
                ]);
            }
            Event::Selection(event) if matches!(event.kind, SelectionEventKind::Waiting { .. }) => {
                if tracing::enabled!(target: SELECTION, Level::INFO) {
                    let record = LogRecord::of_selection(event);
                    write_record!(info, SELECTION, name, record, [
                        selector operation operationId topologyDescription remainingTimeMS
                    ]);
                }
            }
            Event::Selection(event) if tracing::enabled!(target: SELECTION, Level::DEBUG) => {
                let record = LogRecord::of_selection(event);
                write_record!(debug, SELECTION, name, record, [
                    selector operation operationId topologyDescription serverHost serverPort failure
                ]);
            }
            Event::Command(event) if tracing::enabled!(target: COMMAND, Level::DEBUG) => {
                let record = LogRecord::of_command(server, event, self.max_document_length);
                write_record!(debug, COMMAND, name, record, [
                    serverHost serverPort commandName databaseName requestId operationId driverConnectionId
                    serverConnectionId serviceId command durationMS reply failure
                ]);
            }
            Event::PossibleLeak(slow) => {
                let holder = &slow.holder;
                tracing::warn!(
                    target: CONNECTION,
                    event = name,
                    label = holder.label.as_deref(),
                    driverConnectionId = holder.connection_id.get(),
                    serverConnectionId = holder.server_connection_id,
                    "{slow}"
                );
            }
            Event::Lost(count) => {
                tracing::warn!(target: CONNECTION, event = name, "{count} events were lost: a handler is too slow");
            }
            Event::Pool(_) | Event::Server(_) | Event::Topology(_) | Event::Selection(_) | Event::Command(_) => {}
        }
    }
}

fn value(value: &LogValue) -> &dyn Value {
    match value {
        LogValue::Text(Cow::Borrowed(text)) => text,
        LogValue::Text(Cow::Owned(text)) => text,
        LogValue::Integer(number) => number,
        LogValue::Millis(millis) => millis,
        LogValue::Boolean(is) => is,
    }
}

/// What uses took, of a client that is closed; or, at level WARN, those alone that have not ended in time.
pub(crate) fn uses(report: &UseReport, has_leaks: bool) {
    if has_leaks {
        let leaks = report.leaks();
        tracing::warn!(target: CONNECTION, event = "Leaks", "connections were not given back in time\n{leaks}");
    } else {
        tracing::info!(target: CONNECTION, event = "Uses", "{report}");
    }
}

pub(crate) fn warn(warning: &Warning) {
    tracing::warn!(target: CONNECTION, "{warning}");
}
