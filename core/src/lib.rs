//! MongoDB's connection pool as a pure state machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod connection;
pub mod event;
pub mod log;
pub mod options;
pub mod pool;
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod time;
