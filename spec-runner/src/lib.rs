//! The suites of tests that check the project, and the tools that tests need.
//!
//! [`suites`] reads MongoDB's official test files and this project's scenarios, carries them out and prints a table of the
//! results. [`tools`] is about real sockets: a server for tests, interoperability with official drivers, and soak.
//! [`cli`] is the command line of both.
//!
//! Suites may use a tool (the engines on sockets talk to the server for tests); no tool uses a suite.

extern crate alloc;

pub mod cli;
pub mod suites;
pub mod tools;
