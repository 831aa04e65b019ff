//! The commands of `spec-runner` from outside: their output and their exit status.
//!
//! One program, since each program is linked with all of `spec-runner`. What takes both CPUs for seconds is a program of its own.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops where something is not as it should be"
)]

mod cli;
mod format;
mod interop;
mod program;
mod rules;
mod traces;
mod unified;
mod uris;
