//! Which servers suit an operation, and the one that is chosen.
//!
//! The choice has two steps. What a [`ServerSelector`] wants leads to the suitable servers of a topology, and the fastest of
//! them to a [`LatencyWindow`]; both change only with the description, so a machine computes them once for each description
//! and selector. Every operation then takes [one of the window](LatencyWindow::choose): the less busy of two that chance
//! picks. That costs the same with a thousand servers as with two, and allocates nothing.
//!
//! ```text
//! TopologyDescription ──suitable_servers──▶ suitable ──LatencyWindow::new──▶ window ──choose──▶ one server
//!     mode, staleness, tag sets (SEL-22)        the fastest (SEL-2)        the less busy of two (SEL-3)
//! ```
//!
//! Servers are named by their positions in [`TopologyDescription::servers`](super::TopologyDescription::servers).
//!
//! | file | what it holds |
//! |---|---|
//! | `server_selector` | what an operation wants, and which it is |
//! | `suitable` | the servers that suit it, and whether there are any |
//! | `staleness` | how far a secondary lags behind |
//! | `latency_window` | the fastest of them, and the choice |
//! | `error` | why no server was selected |

mod error;
mod latency_window;
mod server_selector;
mod staleness;
mod suitable;
#[cfg(test)]
mod topologies;

pub use self::error::{SelectionError, SelectionErrorKind};
pub use self::latency_window::LatencyWindow;
pub use self::server_selector::{Criteria, Operation, ServerSelector};
pub use self::staleness::{IDLE_WRITE_PERIOD, MaxStalenessError, SMALLEST_MAX_STALENESS};
