//! The kinds of values that options have, and how each is written (URI-6 to URI-8, URI-11).
//!
//! A reader gets the decoded text and returns the value, or a description of the value it expected.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::compressor::Compressor;
use super::concern::W;
use super::read_preference::{MaxStaleness, TagSet};
use super::secret::Secret;
use super::warning::Warning;

/// A description of the valid values.
pub(super) type Expected = Cow<'static, str>;

/// One value while it is read.
pub(super) struct Reading<'a> {
    /// The option's name.
    pub(super) option: &'static str,
    /// The value, decoded.
    pub(super) text: &'a str,
    /// Receives warnings about a value that counts nevertheless.
    pub(super) warnings: &'a mut Vec<Warning>,
}

/// The greatest integer unless a row says otherwise (URI-11).
pub(super) const MAX_32_BITS: i64 = i32::MAX as i64;

/// Words for true and false that are understood with a warning (URI-7).
const DEPRECATED_BOOLEANS: [(&str, bool); 9] = [
    ("1", true),
    ("yes", true),
    ("y", true),
    ("t", true),
    ("0", false),
    ("-1", false),
    ("no", false),
    ("n", false),
    ("f", false),
];

/// `true` or `false` (URI-7).
pub(super) fn boolean(reading: &mut Reading<'_>) -> Result<bool, Expected> {
    match reading.text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => {
            let known = DEPRECATED_BOOLEANS.iter().find(|(word, _)| *word == other);
            let &(word, meaning) = known.ok_or("true or false")?;
            reading.warnings.push(Warning::DeprecatedBoolean { option: reading.option, word, meaning });
            Ok(meaning)
        }
    }
}

/// An integer from `min` to `max`.
pub(super) fn integer<T: TryFrom<i64>>(reading: &Reading<'_>, min: i64, max: i64) -> Result<T, Expected> {
    let value = whole_number(reading.text).filter(|value| (min..=max).contains(value));
    value
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| Cow::Owned(alloc::format!("an integer from {min} to {max}")))
}

/// An integer that counts something.
pub(super) fn count(reading: &Reading<'_>, min: i64) -> Result<u32, Expected> {
    integer(reading, min, MAX_32_BITS)
}

/// Milliseconds, at least `min`.
pub(super) fn millis(reading: &Reading<'_>, min: i64) -> Result<Duration, Expected> {
    integer(reading, min, MAX_32_BITS).map(Duration::from_millis)
}

/// Milliseconds as an integer of 64 bits.
pub(super) fn long_millis(reading: &Reading<'_>) -> Result<Duration, Expected> {
    integer(reading, 0, i64::MAX).map(Duration::from_millis)
}

/// Whether `text` has a NUL, which would cut it off in the server or in the system.
pub(super) fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

/// Any text without a NUL.
pub(super) fn name(reading: &Reading<'_>) -> Result<String, Expected> {
    if has_nul(reading.text) { Err("a text without a NUL".into()) } else { text(reading) }
}

/// Any text.
pub(super) fn text(reading: &Reading<'_>) -> Result<String, Expected> {
    Ok(reading.text.into())
}

/// Any text, never shown.
pub(super) fn secret(reading: &Reading<'_>) -> Result<Secret, Expected> {
    Ok(reading.text.into())
}

/// A text of at most `max` bytes.
pub(super) fn short_text(reading: &Reading<'_>, max: usize) -> Result<String, Expected> {
    if reading.text.len() > max {
        return Err(Cow::Owned(alloc::format!("at most {max} bytes")));
    }
    name(reading)
}

/// One of some words, exactly as spelled.
pub(super) fn choice<T: Copy>(reading: &Reading<'_>, choices: &[(&'static str, T)]) -> Result<T, Expected> {
    let found = choices.iter().find(|(word, _)| *word == reading.text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        Cow::Owned(words.join(" or "))
    })
}

/// Compressors by priority; unknown ones are left out with a warning (COMP-2).
pub(super) fn compressors(reading: &mut Reading<'_>) -> Result<Vec<Compressor>, Expected> {
    let mut compressors = Vec::new();
    for (name, position) in reading.text.split(',').zip(1..).filter(|(name, _)| !name.is_empty()) {
        match Compressor::from_name(name) {
            Some(known) if compressors.contains(&known) => {}
            Some(known) => compressors.push(known),
            None => reading.warnings.push(Warning::UnknownEntry {
                option: reading.option,
                position,
                expected: "snappy, zlib or zstd",
            }),
        }
    }
    Ok(compressors)
}

/// The `w` of a write concern: a number of members, or a name.
pub(super) fn w(reading: &Reading<'_>) -> Result<W, Expected> {
    let is_number = reading.text.strip_prefix('-').unwrap_or(reading.text).bytes().all(|byte| byte.is_ascii_digit());
    if is_number { count(reading, 0).map(W::Members) } else { name(reading).map(W::Named) }
}

/// Seconds, or -1 for no limit. Whether a limit is long enough depends on the topology.
pub(super) fn max_staleness(reading: &Reading<'_>) -> Result<MaxStaleness, Expected> {
    if reading.text == "-1" {
        return Ok(MaxStaleness::Unlimited);
    }
    let seconds = count(reading, 0).map_err(|expected| Cow::Owned(alloc::format!("-1, or {expected}")))?;
    Ok(MaxStaleness::AtMost(Duration::from_secs(seconds.into())))
}

/// One tag set, `key:value,key:value`; an empty text is the set that every member matches.
pub(super) fn tag_set(reading: &Reading<'_>) -> Result<TagSet, Expected> {
    name(reading)?;
    let entries = || reading.text.split(',').filter(|_| !reading.text.is_empty());
    let set: Option<BTreeMap<_, _>> = entries().map(key_and_value).map(|tag| tag.map(owned)).collect();
    set.ok_or(Cow::Borrowed("key:value, with commas between several"))
}

/// The name of a service in DNS: RFC 6335, but up to 62 characters.
pub(super) fn service_name(reading: &Reading<'_>) -> Result<String, Expected> {
    let name = reading.text;
    let is_name = (1..=62).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !(name.starts_with('-') || name.ends_with('-') || name.contains("--"));
    if is_name { text(reading) } else { Err("letters, digits and single hyphens, at most 62 (RFC 6335)".into()) }
}

/// Splits at the first colon (URI-8); neither side is empty.
pub(super) fn key_and_value(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(key, _)| !key.is_empty())
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.into(), value.into())
}

/// An integer without a plus sign, which Rust would accept.
fn whole_number(text: &str) -> Option<i64> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// The value of `text`, and the warnings.
    fn read<T>(
        text: &str,
        reader: impl Fn(&mut Reading<'_>) -> Result<T, Expected>,
    ) -> (Result<T, Expected>, Vec<Warning>) {
        let mut warnings = Vec::new();
        let value = reader(&mut Reading { option: "option", text, warnings: &mut warnings });
        (value, warnings)
    }

    #[test]
    fn only_true_and_false_are_booleans_without_a_warning() {
        for (text, value, warns) in [("true", true, 0), ("false", false, 0), ("y", true, 1), ("-1", false, 1)] {
            let (read, warnings) = read(text, boolean);
            assert_eq!((read, warnings.len()), (Ok(value), warns), "{text}");
        }
        let (value, warnings) = read("True", boolean);
        assert_eq!((value, warnings), (Err("true or false".into()), Vec::new()));
        assert_eq!(read("1", boolean).1[0].to_string(), "option option has the deprecated value 1; write option=true");
    }

    #[test]
    fn integers_have_bounds_and_no_plus_sign() {
        let number = |text| read(text, |reading| integer::<i32>(reading, -1, 9)).0;

        assert_eq!((number("-1"), number("9")), (Ok(-1), Ok(9)));
        for text in ["-2", "10", "+1", "1.0", " 1", "9223372036854775808", "x"] {
            assert_eq!(number(text), Err("an integer from -1 to 9".into()), "{text}");
        }
    }

    #[test]
    fn plain_durations_have_32_bits_and_long_ones_64() {
        assert!(read("2147483648", |reading| millis(reading, 0)).0.is_err());
        assert_eq!(
            read("9223372036854775807", |reading| long_millis(reading)).0,
            Ok(Duration::from_millis(9_223_372_036_854_775_807))
        );
    }

    #[test]
    fn compressors_keep_their_order_and_lose_the_unknown() {
        let (value, warnings) = read("zstd,lz4,zlib,zstd", compressors);

        assert_eq!(value, Ok(alloc::vec![Compressor::Zstd, Compressor::Zlib]));
        assert_eq!(
            warnings[0].to_string(),
            "entry 2 of option option is unknown and left out; write snappy, zlib or zstd"
        );
    }

    #[test]
    fn w_is_a_number_of_members_or_a_name() {
        let value = |text| read(text, |reading| w(reading)).0;

        assert_eq!(value("2"), Ok(W::Members(2)));
        assert_eq!(value("majority"), Ok(W::Named("majority".into())));
        assert!(value("-1").is_err() && value("2147483648").is_err());
    }

    #[test]
    fn staleness_is_a_number_of_seconds_or_minus_one() {
        let value = |text| read(text, |reading| max_staleness(reading)).0;

        assert_eq!(value("-1"), Ok(MaxStaleness::Unlimited));
        assert_eq!(value("90"), Ok(MaxStaleness::AtMost(Duration::from_secs(90))));
        assert_eq!(value("1"), Ok(MaxStaleness::AtMost(Duration::from_secs(1))));
        assert!(value("-2").is_err() && value("1.5").is_err());
    }

    #[test]
    fn tags_split_at_the_first_colon() {
        let value = |text| read(text, |reading| tag_set(reading)).0;

        assert_eq!(value("dc:ny:1,rack:").unwrap(), TagSet::from([("dc", "ny:1"), ("rack", "")].map(owned)));
        assert_eq!(value(""), Ok(TagSet::new()));
        assert!(value("dc").is_err() && value(":ny").is_err() && value("dc:ny,").is_err());
    }

    #[test]
    fn service_names_follow_the_rfc() {
        let value = |text| read(text, |reading| service_name(reading)).0;

        assert!(value("mongodb").is_ok() && value("a-1").is_ok());
        for text in ["-a", "a-", "a--b", "1", "a_b", &"a".repeat(63)] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
