//! The suite that every adapter has to pass, by way of agents: no client connects to a server.

mod harness;

cmap_conformance::conformance!(
    ignored "full: what differs by way of agents is the dialer, whose own cases (smol-reverse) are not ignored"
    behind cmap_conformance::reverse::behind::BehindAgents<crate::harness::Global>
);
