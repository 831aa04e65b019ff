//! The commands of `cmap` from outside: their output and their exit status.
//!
//! One program, since each program is linked with all of `cmap`. What takes both CPUs for seconds is a program of its own.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops where something is not as it should be"
)]

mod completions;
mod incident;
#[path = "../members/mod.rs"]
mod members;
mod pictures;
mod plan;
mod program;
mod recorded;
mod replay;
mod serve;
mod srv;
mod track_events;
