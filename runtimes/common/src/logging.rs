//! The pool's log messages as records of the crate `tracing` (feature `tracing`).
//!
//! Level DEBUG, target `cmap::connection` (LOG-10), the message as the specification words it. Nothing is put together
//! that nobody reads (LOG-9). The fields of the structured form go along as JSON-like text, since those of `tracing`
//! are fixed when a program is compiled.

use cmap_core::address::ServerAddress;
use cmap_core::log::LogRecord;
use cmap_core::options::Warning;

use crate::event::Event;

/// The target of the pool's records.
const TARGET: &str = "cmap::connection";

/// Whether anybody reads the records, as far as can be known when a client is made or subscribed to.
pub(crate) fn is_enabled() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
}

pub(crate) fn log(address: &ServerAddress, event: &Event) {
    let Event::Pool(event) = event else { return };
    if is_enabled() {
        let record = LogRecord::new(address, event);
        tracing::debug!(target: TARGET, server = %address, event = event.name(), "{record}");
    }
}

pub(crate) fn warn(warning: &Warning) {
    tracing::warn!(target: TARGET, "{warning}");
}
