//! The commands that write items of any number, and what each calls them.

/// A command that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Update,
    Delete,
    /// `bulkWrite`, whose items name their collections.
    Bulk,
}

/// The second sequence of a bulkWrite: the collections.
pub(super) const NAMESPACES: &str = "nsInfo";

impl Kind {
    /// The command of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "insert" => Self::Insert,
            "update" => Self::Update,
            "delete" => Self::Delete,
            "bulkWrite" => Self::Bulk,
            _ => return None,
        })
    }

    /// The sequence of its items.
    pub(super) fn items(self) -> &'static str {
        match self {
            Self::Insert => "documents",
            Self::Update => "updates",
            Self::Delete => "deletes",
            Self::Bulk => "ops",
        }
    }

    /// All sequences that the command needs.
    pub(super) fn sequences(self) -> &'static [&'static str] {
        match self {
            Self::Insert => &["documents"],
            Self::Update => &["updates"],
            Self::Delete => &["deletes"],
            Self::Bulk => &["ops", NAMESPACES],
        }
    }
}
