//! Where an actual value first differs from the expected one.

use core::fmt;

use super::place::Place;

/// A difference between an expected and an actual value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    place: Place,
    text: String,
}

impl Mismatch {
    /// `expected` is a pattern in words; `actual` is the text of the value at `place`, if there is one.
    pub(crate) fn new(place: &Place, expected: &str, actual: Option<String>) -> Self {
        let actual = actual.unwrap_or_else(|| "nothing".into());
        Self { place: place.clone(), text: format!("expected {expected}, got {actual}") }
    }

    /// The same difference, seen from the value of which `key` is a part.
    #[must_use]
    pub fn below(self, key: &str) -> Self {
        Self { place: self.place.below(key), text: self.text }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.write_before(f, &self.text)
    }
}
