//! The cases of listeners and agents, for connections that the database's side opens.

mod harness;

cmap_conformance::conformance_of_listeners!((ignored "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol") crate::harness::Global);
