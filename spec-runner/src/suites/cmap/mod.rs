//! Tests in the CMAP format: operations for a pool, and the events that it must report.
//!
//! The official files are in MongoDB's specifications repository; this project's own, in the same format with a few
//! more words, are in `scenarios/`.
//!
//! 1. [`format`](mod@format) reads a file into a [`Case`](format::Case), and refuses every word that it does not know;
//! 2. [`engine`] carries out the operations on a pool and notes the events: the machine in virtual time, once for each seed
//!    that [`runner`] picks, or the pool of a runtime against the embedded server;
//! 3. [`verdict`] compares the events with the expected ones, by the rules in
//!    [`matching`](crate::suites::matching).

pub mod engine;
pub mod format;
pub mod runner;
pub mod verdict;
