//! MongoDB's connection pool as a C library: `include/cmap.h` is its manual, and is made from the files here.
//!
//! A `struct cmap_pool` is one pool, driven as the one server of an unmonitored topology, so that its calls can be recorded. Each
//! function is one call of it, with flat arguments; what it leads to is polled. The socket of a connection is a number of the
//! driver's.
//!
//! `unsafe` is here because C hands over pointers. What a function asks of them is said once, at the top of the header. A function
//! checks its arguments before it makes its call, so that a call that is refused has changed nothing.
//!
//! | file | what it holds |
//! |---|---|
//! | `code` | the numbers that functions return, and why they return them |
//! | `ids`, `output` | the structs of the header, and the numbers in them |
//! | `memory` | the caller's memory: what is read from it and written to it |
//! | `pool` | a pool behind its pointer: one caller at a time, no panic gets out |
//! | `options`, `report` | JSON in, JSON out |
//! | `lifecycle`, `callers`, `establishing`, `upkeep`, `polling`, `queries`, `recording` | the functions, by who calls them |

#![allow(
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "what C has to see to is said once, at the top of the header; C has no other way to hand over arguments"
)]

mod callers;
mod code;
mod establishing;
mod ids;
mod lifecycle;
mod memory;
mod options;
mod output;
mod polling;
mod pool;
mod queries;
mod recording;
mod report;
mod upkeep;

pub use self::callers::*;
pub use self::code::*;
pub use self::establishing::*;
pub use self::ids::*;
pub use self::lifecycle::*;
pub use self::output::*;
pub use self::polling::*;
pub use self::pool::Pool;
pub use self::queries::*;
pub use self::recording::*;
pub use self::upkeep::*;
