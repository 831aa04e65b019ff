//! The suites of tests that check the project, and the tools that tests need.
//!
//! [`suites`] reads MongoDB's official test files and this project's scenarios, carries them out and prints a table of the
//! results. [`tools`] is about interoperability with official drivers, and simulation. [`cli`] is the command line of both.
//!
//! The server for tests is that of `cmap_cli`. No suite uses a tool, and no tool a suite.

extern crate alloc;

pub mod cli;
pub mod suites;
pub mod tools;
