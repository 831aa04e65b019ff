//! The span of a check-out that waits. Its fields have the names of the log records (LOG-6).

use tracing::field::Empty;
use tracing::{Span, debug_span};

use crate::watch::Place;

/// The span of a check-out that begins to wait. `failure` says later why it failed.
pub(crate) fn of_check_out(label: Option<&str>, place: Option<Place>) -> Span {
    debug_span!(
        target: "cmap::connection",
        "check_out",
        label,
        place = place.map(display),
        driverConnectionId = Empty,
        failure = Empty,
    )
}
