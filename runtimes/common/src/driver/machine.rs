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
