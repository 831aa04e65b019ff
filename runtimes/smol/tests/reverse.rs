//! The cases of listeners and agents, for connections that the database's side opens.

mod harness;

cmap_conformance::conformance_of_listeners!(real crate::harness::Global);
