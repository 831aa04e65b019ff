//! The suites of tests, and their common parts.
//!
//! The path of a test file:
//!
//! 1. [`official`] names the suites, [`files`] finds the files of each and reads them as JSON;
//! 2. [`content`] detects the format of a file by its keys, and reads it as a test of that format;
//! 3. [`run`] hands the test to its suite, which returns an [`outcome`];
//! 4. [`report`] prints the outcomes, a table and the totals.
//!
//! | suite | subject |
//! |---|---|
//! | [`cmap`] | a pool, on every engine: the pool's machine in virtual time, and the pools of the runtimes on sockets |
//! | [`sdam`] | server discovery and monitoring, and round-trip times: a topology of the core, its monitors beside it |
//! | [`seed_list`] | the hosts and options that DNS has for a connection string |
//! | [`selection`] | which servers suit an operation, and how often each is chosen |
//! | [`uri`] | the parts and options of a connection string |
//! | [`unified`] | whole clients, in virtual time, against embedded servers |
//!
//! All suites read their files strictly: an unknown word is a [`problem`] that names its [`place`], or the reason of a skip.
//! Only the engines on sockets read a clock or iterate in an unspecified order: elsewhere, the same seed prints the same
//! bytes.

pub mod cmap;
pub mod content;
mod extended_json;
pub mod files;
pub mod json;
pub mod matching;
pub mod mismatch;
mod monitored;
pub mod official;
pub mod outcome;
pub mod place;
mod pool_event;
pub mod problem;
pub mod report;
pub mod requirement;
pub mod run;
pub mod sdam;
pub mod seed_list;
pub mod selection;
pub mod unified;
pub mod uri;
