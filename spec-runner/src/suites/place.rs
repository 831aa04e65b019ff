//! A place in a JSON value, written the way people write it: `operations[3].timeout`.

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
            // An enum's variant is chosen by a value, which has no place of its own.
            Segment::Enum { .. } | Segment::Unknown => place,
        })
    }

    /// The same part, seen from the object that holds the whole value under `key`.
    #[must_use]
    pub fn below(&self, key: &str) -> Self {
        if self.0.is_empty() { Self(key.into()) } else { Self(format!("{key}.{}", self.0)) }
    }

    /// Writes `text` about this part, after its name: only `text` for the whole value.
    pub(crate) fn write_before(&self, f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
        if self.0.is_empty() { f.write_str(text) } else { write!(f, "{}: {text}", self.0) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
