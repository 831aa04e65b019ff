//! Tests of the server's side alone; `tests/authentication.rs` has both sides against each other.

mod faults;
mod secrets;
mod vectors;
