//! The CMAP test format as types: everything that a test file may contain, and nothing else.
//!
//! [`json::parse`](crate::suites::json::parse) turns text into a JSON value, [`Case::from_json`] turns the value into a
//! [`Case`]. Every unknown operation, field, option, event or reason, every value of a wrong type or outside its range,
//! and every use of a thread or label that cannot exist is a [`Problem`] that names its place: a test whose words were
//! silently skipped would pass without testing anything.
//!
//! Files of style "unit" and "integration" are the official format, version 1. Style "scenario" is this project's
//! superset; `scenarios/README.md` lists its words. They are refused in official styles, so that a typing error in an
//! official file is never read as an extension.

mod affinity;
mod case;
mod error;
mod event;
mod fail_point;
mod operation;
mod options;
mod requirement;
mod sense;

pub use self::case::{Case, Style};
pub use self::error::{ErrorType, ExpectedError};
pub use self::event::{EventType, ExpectedEvent, describe};
pub use self::fail_point::FailPoint;
pub use self::operation::{ConnectionName, NetworkMode, NewCredential, Operation, OperationError, Step, WarmUpFailure};
pub use self::options::{Interval, Login, PoolOptions, Profile, ServerOptions};
pub use self::requirement::{Deployment, RunOn};
use crate::suites::place::Place;
use crate::suites::problem::Problem;

/// A word of style "scenario" in an official style.
fn extension(place: &Place) -> Problem {
    Problem::at(place, "belongs to style \"scenario\" and is not allowed in an official style")
}
