//! The read preference: which members of a replica set may serve a read.
//!
//! One type for the client's option, for a server's selection, and for the field `$readPreference` of a command.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

#[cfg(feature = "wire")]
use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error_text::readable_debug;

/// Which members of a replica set may serve a read. The default is the primary.
///
/// Tags and staleness choose among secondaries, so the mode primary has neither (SEL-23).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct ReadPreference {
    /// `readPreference`.
    pub(super) mode: Option<ReadMode>,
    /// `readPreferenceTags`.
    pub(super) tag_sets: Option<Vec<TagSet>>,
    /// `maxStalenessSeconds`.
    pub(super) max_staleness: Option<MaxStaleness>,
}

/// Tags of a member, by name.
pub type TagSet = BTreeMap<String, String>;

/// The kind of member that may serve a read (SEL-19, SEL-20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReadMode {
    /// The primary.
    #[default]
    Primary,
    /// The primary if there is one, else a secondary.
    PrimaryPreferred,
    /// A secondary.
    Secondary,
    /// A secondary if there is one, else the primary.
    SecondaryPreferred,
    /// Any, by latency alone.
    Nearest,
}

/// How far a member may lag behind the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MaxStaleness {
    /// Any distance; written -1.
    Unlimited,
    /// At most this duration, in whole seconds. In a replica set less than 90 s is an error when a server is selected
    /// (SEL-24, X-40).
    AtMost(Duration),
}

/// A read preference contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadPreferenceError {
    /// Tags, but the mode allows the primary alone (SEL-23).
    #[error(
        "readPreferenceTags choose among secondaries, but readPreference is primary; write another mode, or remove the tags"
    )]
    TagSetsWithPrimary,
    /// A maximum of staleness, but the mode allows the primary alone (SEL-23).
    #[error(
        "maxStalenessSeconds limits the lag of secondaries, but readPreference is primary; write another mode, or remove it"
    )]
    MaxStalenessWithPrimary,
}

readable_debug!(ReadPreferenceError);

impl ReadPreference {
    /// The members of this kind, whatever their tags and their lag.
    pub fn new(mode: ReadMode) -> Self {
        Self { mode: Some(mode), ..Self::default() }
    }

    /// Sets the tag sets. The first that matches any member decides, and the empty set matches all (SEL-29).
    ///
    /// # Errors
    /// The mode is primary, and a set is not empty.
    pub fn with_tag_sets(self, tag_sets: Vec<TagSet>) -> Result<Self, ReadPreferenceError> {
        let preference = Self { tag_sets: Some(tag_sets), ..self };
        preference.check().map(|()| preference)
    }

    /// Limits how far a secondary may lag behind the primary.
    ///
    /// # Errors
    /// The mode is primary, and the limit is longer than zero.
    pub fn with_max_staleness(self, max_staleness: MaxStaleness) -> Result<Self, ReadPreferenceError> {
        let preference = Self { max_staleness: Some(max_staleness), ..self };
        preference.check().map(|()| preference)
    }

    /// The kind of member.
    pub fn mode(&self) -> ReadMode {
        self.mode.unwrap_or_default()
    }

    /// The tag sets; none admit every member, as the empty set does.
    pub fn tag_sets(&self) -> &[TagSet] {
        self.tag_sets.as_deref().unwrap_or_default()
    }

    /// How far a secondary may lag behind the primary; `None` = any distance.
    pub fn max_staleness(&self) -> Option<Duration> {
        match self.max_staleness {
            Some(MaxStaleness::AtMost(limit)) => Some(limit),
            Some(MaxStaleness::Unlimited) | None => None,
        }
    }

    /// SEL-23.
    pub(super) fn check(&self) -> Result<(), ReadPreferenceError> {
        if self.mode() != ReadMode::Primary {
            Ok(())
        } else if self.tag_sets().iter().any(|set| !set.is_empty()) {
            Err(ReadPreferenceError::TagSetsWithPrimary)
        } else if self.max_staleness().is_some_and(|limit| limit > Duration::ZERO) {
            Err(ReadPreferenceError::MaxStalenessWithPrimary)
        } else {
            Ok(())
        }
    }

    /// The value of `$readPreference` (SEL-37), with this preference's mode replaced by `mode`.
    #[cfg(feature = "wire")]
    pub(crate) fn document(&self, mode: ReadMode) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("mode"), mode.name());
        if !self.tag_sets().is_empty() {
            let mut tags = RawArrayBuf::new();
            for set in self.tag_sets() {
                // Options have no NUL, which would end a name.
                let pairs = set
                    .iter()
                    .filter_map(|(name, value)| Some((bson::raw::CString::try_from(name.as_str()).ok()?, value)));
                let mut tag_set = RawDocumentBuf::new();
                pairs.for_each(|(name, value)| tag_set.append(&name, value.as_str()));
                tags.push(tag_set);
            }
            document.append(cstr!("tags"), tags);
        }
        if let Some(limit) = self.max_staleness() {
            document.append(cstr!("maxStalenessSeconds"), i64::try_from(limit.as_secs()).unwrap_or(i64::MAX));
        }
        document
    }
}

/// `mode secondary, tag sets [{"dc": "ny"}, {}], maxStalenessSeconds 120`, without the parts that are not set.
impl fmt::Display for ReadPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {}", self.mode().name())?;
        if !self.tag_sets().is_empty() {
            write!(f, ", tag sets {:?}", self.tag_sets())?;
        }
        self.max_staleness().map_or(Ok(()), |limit| write!(f, ", maxStalenessSeconds {}", limit.as_secs()))
    }
}

impl ReadMode {
    /// Its name in options and commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    /// The modes by their names.
    pub(super) const NAMED: [(&'static str, Self); 5] = [
        ("primary", Self::Primary),
        ("primaryPreferred", Self::PrimaryPreferred),
        ("secondary", Self::Secondary),
        ("secondaryPreferred", Self::SecondaryPreferred),
        ("nearest", Self::Nearest),
    ];
}

/// The serialised form, before it is checked.
#[derive(Deserialize)]
struct Unchecked {
    mode: Option<ReadMode>,
    tag_sets: Option<Vec<TagSet>>,
    max_staleness: Option<MaxStaleness>,
}

impl TryFrom<Unchecked> for ReadPreference {
    type Error = ReadPreferenceError;

    fn try_from(Unchecked { mode, tag_sets, max_staleness }: Unchecked) -> Result<Self, ReadPreferenceError> {
        let preference = Self { mode, tag_sets, max_staleness };
        preference.check().map(|()| preference)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    fn tags(name: &str, value: &str) -> TagSet {
        TagSet::from([(name.into(), value.into())])
    }

    const TWO_MINUTES: MaxStaleness = MaxStaleness::AtMost(Duration::from_secs(120));

    #[test]
    fn the_mode_primary_has_neither_tags_nor_a_limit_of_staleness_sel_23() {
        let primary = || ReadPreference::new(ReadMode::Primary);

        assert_eq!(primary().with_tag_sets(vec![tags("a", "b")]), Err(ReadPreferenceError::TagSetsWithPrimary));
        assert_eq!(primary().with_max_staleness(TWO_MINUTES), Err(ReadPreferenceError::MaxStalenessWithPrimary));
        assert!(ReadPreference::default().with_tag_sets(vec![tags("a", "b")]).is_err());
    }

    #[test]
    fn what_says_nothing_goes_along_with_primary_sel_23() {
        let primary = ReadPreference::new(ReadMode::Primary).with_tag_sets(vec![TagSet::new()]).unwrap();
        let primary = primary.with_max_staleness(MaxStaleness::Unlimited).unwrap();

        assert_eq!((primary.mode(), primary.max_staleness()), (ReadMode::Primary, None));
    }

    #[test]
    fn a_preference_is_displayed_with_all_that_it_asks_for() {
        let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags("dc", "ny"), TagSet::new()]);
        let preference = preference.and_then(|preference| preference.with_max_staleness(TWO_MINUTES)).unwrap();

        assert_eq!(preference.to_string(), r#"mode nearest, tag sets [{"dc": "ny"}, {}], maxStalenessSeconds 120"#);
        assert_eq!(ReadPreference::default().to_string(), "mode primary");
    }

    #[test]
    fn a_stored_preference_is_checked_when_it_is_restored() {
        let preference = ReadPreference::new(ReadMode::Secondary).with_max_staleness(TWO_MINUTES).unwrap();
        let stored = serde_json::to_string(&preference).unwrap();

        assert_eq!(serde_json::from_str::<ReadPreference>(&stored).unwrap(), preference);
        let contradiction = stored.replace("Secondary", "Primary");
        let error = serde_json::from_str::<ReadPreference>(&contradiction).unwrap_err().to_string();
        assert!(error.contains("readPreference is primary"), "{error}");
    }
}
