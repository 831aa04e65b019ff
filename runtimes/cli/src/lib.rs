//! The commands of the program `cmap`.
//!
//! | room | command |
//! |---|---|
//! | `demo` | shows the pool at work, in seconds |
//! | [`serve`] | serves MongoDB's protocol for tests; its servers can also live inside a test's own process |
//! | `replay` | repeats what a client recorded, and says why its callers waited |
//! | `plan` | counts the connections of a deployment |
//! | `soak` | keeps clients busy for a long time, and looks for what is left over |
//!
//! [`run`] is the command line of all of them. `demo` and `soak` start this program again: as their server, and `soak` as the
//! process of each runtime.

#![forbid(unsafe_code)]

extern crate alloc;

mod ask;
mod cli;
mod demo;
mod live_table;
mod plan;
#[doc(hidden)]
pub mod process;
mod replay;
pub mod serve;
mod server_process;
mod soak;
mod terminal;
#[doc(hidden)]
pub mod while_read;

pub use self::cli::run;
