//! The machine under a client's mutex: the core's topology, whose calls are recorded where the feature `trace` is on and a
//! recorder asks for it.

#[cfg(not(feature = "trace"))]
use cmap_core::topology::Topology;
#[cfg(feature = "trace")]
use cmap_core::trace::Recorded;

#[cfg(feature = "trace")]
pub(crate) type Machine<C> = Recorded<C>;

#[cfg(not(feature = "trace"))]
pub(crate) type Machine<C> = Topology<C>;

/// Whether calls are recorded.
#[cfg(feature = "trace")]
pub(crate) fn is_recording<C>(machine: &Machine<C>) -> bool {
    machine.is_recording()
}

/// The same without recorders.
#[cfg(not(feature = "trace"))]
pub(crate) fn is_recording<C>(_: &Machine<C>) -> bool {
    false
}
