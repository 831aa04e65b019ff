//! The suite that every adapter has to pass, by way of agents: no client connects to a server.

mod harness;

cmap_conformance::conformance!(behind cmap_conformance::reverse::behind::BehindAgents<crate::harness::Global>);
