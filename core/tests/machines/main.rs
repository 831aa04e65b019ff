//! The machines of core, each in virtual time: nothing sleeps, and nothing is random but by a seed.
//!
//! One program, since each program is linked with all of core. What counts allocations, the property test of the pool and the search of
//! its states are programs of their own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    missing_docs,
    reason = "a test fails by panicking, and looks at the outputs that it is about"
)]

mod application_hellos;
mod backoff;
mod borrowing;
mod budget;
mod checking;
mod errors;
mod establish;
mod fast_path;
mod hand_off;
mod holders;
mod host_timeout;
mod hostile_hellos;
mod identities;
mod identities_of_two_servers;
mod identities_protect_a_server;
mod log;
mod min_pool_sizes_and_roles;
mod misuse;
mod monitor_checks;
mod monitor_floor;
mod monitor_properties;
mod monitored;
mod monitored_server;
mod one_server;
mod pinned_server;
mod pinning;
mod proof;
mod recorded_client;
mod resize;
mod restored;
mod retry;
mod retry_properties;
mod returned_delivery;
mod reverse;
mod reverse_idle_tunnels;
mod selection_events;
mod selection_properties;
mod server;
mod sockets;
mod sparse;
mod srv_polling;
mod statistics;
mod texts;
mod topology;
mod topology_reference;
mod trace;
mod unobserved;
mod uri_properties;
mod warm_up;
mod what_if;
mod wire_faults;
mod wire_properties;
