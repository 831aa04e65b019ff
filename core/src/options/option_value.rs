//! Options as names and values, to list or compare the options that a user set.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::client::ServerMonitoringMode;
use super::compressor::Compressor;
use super::concern::W;
use super::mechanism::{Mechanism, MechanismProperties};
use super::read_preference::{MaxStaleness, ReadMode, TagSet};
use super::secret::Secret;
use super::value::{MAX_32_BITS, has_nul};

/// The value of an option as it would stand in a connection string. Durations are integers, in the unit of the name.
#[derive(Clone, Debug)]
pub enum OptionValue {
    /// True or false.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A text that may be shown.
    Text(String),
    /// A text that must not be shown.
    Secret(Secret),
    /// Several texts.
    List(Vec<String>),
    /// Names, and values that must not be shown.
    Properties(MechanismProperties),
    /// Tag sets, each a map.
    TagSets(Vec<TagSet>),
}

impl OptionValue {
    /// The value as the text that a connection string would have, decoded; `None` of secrets and of tag sets, which have no
    /// bounds. A number of more than 32 bits, which only a connection string cannot have (URI-11), is cut.
    pub(super) fn written(&self) -> Option<String> {
        match self {
            Self::Boolean(value) => Some(value.to_string()),
            Self::Integer(value) => Some((*value).min(MAX_32_BITS).to_string()),
            Self::Text(text) => Some(text.clone()),
            Self::List(texts) => Some(texts.join(",")),
            Self::Secret(_) | Self::Properties(_) | Self::TagSets(_) => None,
        }
    }

    /// Whether a text has a NUL. Secrets are not checked here: the code that sends them checks them.
    pub(super) fn has_nul(&self) -> bool {
        match self {
            Self::Boolean(_) | Self::Integer(_) | Self::Secret(_) | Self::Properties(_) => false,
            Self::Text(text) => has_nul(text),
            Self::List(texts) => texts.iter().any(|text| has_nul(text)),
            Self::TagSets(sets) => sets.iter().flatten().any(|(name, tag)| has_nul(name) || has_nul(tag)),
        }
    }
}

/// The common interface of option fields.
pub(super) trait Show {
    /// The value as it would be written.
    fn show(&self) -> OptionValue;
}

macro_rules! show {
    ($($kind:ty: |$value:ident| $shown:expr;)*) => {
        $(impl Show for $kind {
            fn show(&self) -> OptionValue {
                let $value = self;
                $shown
            }
        })*
    };
}

show! {
    bool: |value| OptionValue::Boolean(*value);
    i8: |value| OptionValue::Integer((*value).into());
    u16: |value| OptionValue::Integer((*value).into());
    u32: |value| OptionValue::Integer((*value).into());
    Duration: |value| OptionValue::Integer(saturating(value.as_millis()));
    String: |value| OptionValue::Text(value.clone());
    Secret: |value| OptionValue::Secret(value.clone());
    Vec<Compressor>: |value| OptionValue::List(value.iter().map(|compressor| compressor.name().into()).collect());
    Vec<TagSet>: |value| OptionValue::TagSets(value.clone());
    MechanismProperties: |value| OptionValue::Properties(value.clone());
    Mechanism: |value| name_in(&Mechanism::NAMED, *value);
    ReadMode: |value| name_in(&ReadMode::NAMED, *value);
    ServerMonitoringMode: |value| name_in(&ServerMonitoringMode::NAMED, *value);
    W: |value| match value {
        W::Members(count) => count.show(),
        W::Named(name) => name.show(),
    };
    MaxStaleness: |value| match value {
        MaxStaleness::Unlimited => OptionValue::Integer(-1),
        MaxStaleness::AtMost(limit) => OptionValue::Integer(saturating(limit.as_secs().into())),
    };
}

fn saturating(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn name_in<T: Copy + PartialEq>(named: &[(&'static str, T)], value: T) -> OptionValue {
    let name = named.iter().find(|(_, own)| *own == value).map_or("", |(name, _)| name);
    OptionValue::Text(name.into())
}
