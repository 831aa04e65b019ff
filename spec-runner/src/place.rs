//! Where in a JSON value something stands, written the way people write it: `operations[3].timeout`.

use core::fmt;

/// A path from the top of a JSON value down to one of its parts; empty for the value itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// The whole value.
    pub fn top() -> Self {
        Self::default()
    }

    /// The part of this object under `key`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        if self.0.is_empty() { Self(key.into()) } else { Self(format!("{}.{key}", self.0)) }
    }

    /// The item of this array at `index`, counted from 0.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The part that `path` leads to from here.
    #[must_use]
    pub fn join(&self, path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        path.iter().fold(self.clone(), |place, segment| match segment {
            Segment::Seq { index } => place.index(*index),
            Segment::Map { key } => place.key(key),
            // An enum's variant is chosen by a value, not by a place of its own.
            Segment::Enum { .. } | Segment::Unknown => place,
        })
    }

    /// Whether this is the whole value.
    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
