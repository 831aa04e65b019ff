//! The CMAP test format as types: what a test file may say, and nothing else.
//!
//! [`json::parse`] turns text into a JSON value, [`Case::from_json`] turns the value into a [`Case`]. Every unknown
//! operation, field, option, event or reason, every value of a wrong type or outside its range, and every use of a
//! thread or label that cannot exist is a [`Problem`] that says where it stands: a test whose words were silently
//! skipped would pass without testing anything.
//!
//! Files of style "unit" and "integration" are the official format, version 1. Style "scenario" is this project's
//! superset; `scenarios/README.md` lists its words. They are refused in official styles, so that a typing error in an
//! official file is never read as an extension.

mod case;
mod error;
mod event;
pub mod json;
mod operation;
mod options;
mod requirement;
mod sense;

use core::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::case::{Case, Style};
pub use self::error::{ErrorType, ExpectedError};
pub use self::event::{EventType, ExpectedEvent, describe};
pub use self::operation::{ConnectionName, NetworkMode, Operation, OperationError, Step};
pub use self::options::{Interval, PoolOptions, ServerOptions};
pub use self::requirement::{Deployment, RunOn, Topology, Version};
use crate::place::Place;

/// Why a file cannot be used as a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    place: Place,
    text: String,
}

impl Problem {
    /// A problem at `place`.
    pub fn at(place: &Place, text: impl Into<String>) -> Self {
        Self { place: place.clone(), text: text.into() }
    }

    /// A problem with the file as a whole.
    pub fn of_file(text: impl Into<String>) -> Self {
        Self::at(&Place::top(), text)
    }

    /// The same problem with `from` in its text replaced by `to`, if it stands at `place` itself.
    fn reworded(self, from: &str, to: &str, place: &Place) -> Self {
        if self.place == *place { Self { text: self.text.replacen(from, to, 1), ..self } } else { self }
    }

    /// A word of style "scenario" in an official style.
    fn extension(place: &Place) -> Self {
        Self::at(place, "belongs to style \"scenario\" and is not allowed in an official style")
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_top() { f.write_str(&self.text) } else { write!(f, "{}: {}", self.place, self.text) }
    }
}

impl core::error::Error for Problem {}

/// Reads `value`, which stands at `place`, as a `T`.
pub(crate) fn read<T: DeserializeOwned>(place: &Place, value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        // "variant", "u16" and "u32" are words of Rust, not of test files.
        let text = error.inner().to_string().replacen("unknown variant", "unknown value", 1);
        let text = text.replace("expected u16", "expected an integer from 0 to 65535");
        let text = text.replace("expected u32", "expected an integer from 0 to 4294967295");
        Problem::at(&place.join(error.path()), text)
    })
}

/// Whether `value` is one of the two ways in which the format writes "anything but null" (FMT-1).
pub(crate) fn is_anything(value: &Value) -> bool {
    value.as_f64() == Some(42.0) || value.as_str() == Some("42")
}
