//! Time: the clock of a client, and the limits that callers and options set.
//!
//! | file | what it holds |
//! |---|---|
//! | `clock` | the time of a runtime as the core counts it |
//! | `deadline` | how long one call may wait, and when an operation of several calls has to end |
//! | `budget` | until when an operation may go on, who has set that, and whether its server learns of it |
//! | `command_limit` | how long a command may take, and how much of that is sent to the server |
//!
//! What ends calls whose time is up is the timer of `driver`.

mod budget;
mod clock;
pub(crate) mod command_limit;
mod deadline;

pub(crate) use self::budget::{Budget, SetBy};
pub use self::clock::Clock;
pub use self::command_limit::TimeLimit;
pub(crate) use self::deadline::{CONNECT_TIMEOUT, without_zero};
pub use self::deadline::{Deadline, Limit};
