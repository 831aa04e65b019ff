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
#[cfg(all(feature = "wire", feature = "auth", feature = "snappy", feature = "zlib", feature = "zstd"))]
mod borrowing;
mod budget;
mod checking;
mod errors;
#[cfg(feature = "wire")]
mod establish;
mod fast_path;
mod floors_and_roles;
mod hand_off;
mod holders;
mod hostile_hellos;
mod identities;
mod identities_of_two_servers;
mod log;
mod misuse;
#[cfg(feature = "wire")]
mod monitor_checks;
#[cfg(feature = "wire")]
mod monitor_floor;
#[cfg(feature = "wire")]
mod monitor_properties;
#[cfg(feature = "wire")]
mod monitored;
#[cfg(feature = "wire")]
mod monitored_server;
mod one_server;
mod pinned_server;
mod pinning;
#[cfg(feature = "wire")]
mod proof;
mod recorded_client;
mod restored;
#[cfg(all(feature = "wire", feature = "auth"))]
mod retry;
#[cfg(all(feature = "wire", feature = "auth"))]
mod retry_properties;
mod returned_delivery;
mod reverse;
mod reverse_lot;
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
#[cfg(all(feature = "snappy", feature = "zlib", feature = "zstd"))]
mod wire_faults;
#[cfg(all(feature = "snappy", feature = "zlib", feature = "zstd"))]
mod wire_properties;
