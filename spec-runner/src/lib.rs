//! Runs the tests of MongoDB's connection pool (CMAP) on any pool, in virtual time and on real sockets.
//!
//! A test is a JSON file: operations for a pool, and the events it must report. The official ones live in MongoDB's
//! specifications repository; this project's own, in the same format with a few more words, in `scenarios/`.
//!
//! The way of a file through this crate:
//!
//! 1. [`suite`] finds it and tells what kind of test it is;
//! 2. [`format`](mod@format) reads it into a [`Case`](format::Case), refusing every word it does not know;
//! 3. [`engine`] carries out its operations on a pool and notes the events: the machine in virtual time, once for each seed
//!    that [`runner`] picks, or the pool of a runtime against the embedded server;
//! 4. [`verdict`] compares the events with the expected ones, by the rules in [`matching`];
//! 5. [`report`] prints the result.
//!
//! Files of the official suites of connection strings take a way of their own: [`uri_suite`] reads them, parses the
//! string of each case and compares; no pool takes part. Those of server discovery and monitoring take another:
//! [`sdam_suite`] plays them on an endpoint.
//! Those in the unified format, of whole clients: [`unified`] runs them against embedded servers, in virtual time, too.
//!
//! But for the engines on sockets, none of these reads a clock or iterates in an unspecified order: the same seed prints the
//! same bytes.
//!
//! Three modules are about real sockets. [`serve`] puts the embedded test server behind them; [`interop`] lets official
//! drivers and our client talk to it, and our client to foreign servers; [`soak`] keeps the clients of all runtimes busy for
//! long while that server is killed and started again.

extern crate alloc;

pub mod cli;
pub mod engine;
pub mod format;
pub mod interop;
pub mod matching;
pub mod place;
pub mod report;
pub mod runner;
pub mod sdam_suite;
pub mod serve;
pub mod soak;
pub mod suite;
pub mod unified;
pub mod uri_suite;
pub mod verdict;
