//! What a client's machine does, recorded in memory and written to files that `cmap replay` repeats and explains.
//!
//! The calls are recorded by [`cmap_core::trace`], under the client's lock. Making a file of them, and writing it, happens
//! without that lock; a disk delays no caller.
//!
//! | file | what it holds |
//! |---|---|
//! | `recorder` | what users ask for |
//! | `trigger` | when a file is written |
//! | `files` | where, under which name, and for how long |
//! | `on_panic` | files of all clients when the program panics |
//! | `holders` | the texts of those who make the calls |

mod files;
mod holders;
mod on_panic;
mod recorder;
mod trigger;

pub(crate) use self::holders::Holders;
pub use self::recorder::Recorder;
pub(crate) use self::trigger::Trigger;
