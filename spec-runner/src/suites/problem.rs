//! Why a file cannot be used as a test, and reading JSON values into types with such problems.

use core::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::place::Place;

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
    pub(crate) fn reworded(self, from: &str, to: &str, place: &Place) -> Self {
        if self.place == *place { Self { text: self.text.replacen(from, to, 1), ..self } } else { self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.write_before(f, &self.text)
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
