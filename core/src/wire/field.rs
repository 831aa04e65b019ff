//! Fields that every command gets when it is sent: `$db` and its companions.
//!
//! A user's command is never changed (MSG-10). The encoder copies its bytes, writes these fields behind them and
//! corrects the copy's length, so neither a parsed document nor a second buffer is needed.

use alloc::vec::Vec;

use bson::{RawDocument, RawDocumentBuf};

use super::document;
use super::error::{EncodeError, shown};
use super::header::patch_length;

/// A field to append to a command's body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// Text, as `$db` is.
    String(&'a str, &'a str),
    /// A boolean, as `startTransaction` is.
    Boolean(&'a str, bool),
    /// A 32-bit integer.
    Int32(&'a str, i32),
    /// A 64-bit integer, as `txnNumber` and `maxTimeMS` are.
    Int64(&'a str, i64),
    /// A document, as `lsid`, `$readPreference` and `$clusterTime` are.
    Document(&'a str, &'a RawDocument),
    /// All the fields of a document.
    All(&'a RawDocument),
}

/// Appends `body` with the `fields` behind its own (MSG-10), those of one slice after the other; together they may have `max`
/// bytes.
pub(super) fn append_body(
    out: &mut Vec<u8>,
    body: &RawDocument,
    fields: [&[Field<'_>]; 2],
    max: usize,
) -> Result<(), EncodeError> {
    let start = out.len();
    let too_long = |length: usize| EncodeError::CommandTooLong { length, max };
    if body.as_bytes().len() > max {
        return Err(too_long(body.as_bytes().len()));
    }
    let Some((_, elements)) = body.as_bytes().split_last() else { return Ok(()) };
    out.extend_from_slice(elements);
    for fields in fields {
        for field in fields {
            field.append(out)?;
            let length = out.len() + 1 - start;
            if length > max {
                return Err(too_long(length));
            }
        }
    }
    out.push(0);
    let length = out.len() - start;
    patch_length(out, start, length);
    check_names(body, fields)
}

/// No appended field may be a duplicate. A body without appended fields is not checked.
fn check_names(body: &RawDocument, fields: [&[Field<'_>]; 2]) -> Result<(), EncodeError> {
    let is_nothing = |field: &Field<'_>| matches!(field, Field::All(document) if document.is_empty());
    if fields.into_iter().flatten().all(is_nothing) || are_surely_new(body, fields)? {
        return Ok(());
    }
    let all: Vec<_> = fields.into_iter().flatten().copied().collect();
    compare_names(body, &all)
}

/// Whether no appended field can be a duplicate, as one pass over the names shows. `false` says nothing.
fn are_surely_new(body: &RawDocument, fields: [&[Field<'_>]; 2]) -> Result<bool, EncodeError> {
    let mut sieve = Sieve::default();
    for own in document::elements(body) {
        sieve.add(own?.name);
    }
    let mut are_new = true;
    for fields in fields {
        for field in fields {
            match field.names() {
                Names::One(name) => are_new &= sieve.add(name.as_bytes()),
                Names::Of(document) => {
                    for element in document::elements(document) {
                        are_new &= sieve.add(element?.name);
                    }
                }
            }
        }
    }
    Ok(are_new)
}

/// Remembers names by one bit each, which several of them may share.
#[derive(Default)]
struct Sieve(u64);

impl Sieve {
    /// Adds a name; returns whether it was surely not there before.
    #[inline]
    fn add(&mut self, name: &[u8]) -> bool {
        let byte = |at: usize| u64::from(name.get(at).copied().unwrap_or_default());
        let length = name.len();
        let traits = byte(0) | byte(length / 2) << 8 | byte(length.wrapping_sub(1)) << 16 | (length as u64) << 24;
        let bit = 1 << (traits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58);
        let is_new = self.0 & bit == 0;
        self.0 |= bit;
        is_new
    }
}

/// Compares every name with every other.
fn compare_names(body: &RawDocument, fields: &[Field<'_>]) -> Result<(), EncodeError> {
    let is_among = |name: &[u8], fields: &[Field<'_>]| fields.iter().any(|field| field.has(name));
    for own in document::elements(body) {
        let name = own?.name;
        refuse_if(is_among(name, fields), name)?;
    }
    for (index, field) in fields.iter().enumerate() {
        let before = &fields[..index];
        match field.names() {
            Names::One(name) => refuse_if(is_among(name.as_bytes(), before), name.as_bytes())?,
            Names::Of(document) => {
                for (index, element) in document::elements(document).enumerate() {
                    let name = element?.name;
                    let mut others = document::elements(document).take(index).map_while(Result::ok);
                    refuse_if(is_among(name, before) || others.any(|other| other.name == name), name)?;
                }
            }
        }
    }
    Ok(())
}

#[inline]
fn refuse_if(is_duplicate: bool, name: &[u8]) -> Result<(), EncodeError> {
    match is_duplicate {
        true => Err(EncodeError::DuplicateField { name: shown(core::str::from_utf8(name).unwrap_or_default()) }),
        false => Ok(()),
    }
}

/// The name of a [`Field`].
enum Names<'a> {
    One(&'a str),
    /// The names in this document.
    Of(&'a RawDocument),
}

impl<'a> Field<'a> {
    /// Appends it to a document. A name with a NUL is left out, because it is refused where the command is sent.
    pub fn append_to(&self, document: &mut RawDocumentBuf) {
        let mut bytes = core::mem::take(document).into_bytes();
        bytes.pop();
        let before = bytes.len();
        if self.append(&mut bytes).is_err() {
            bytes.truncate(before);
        }
        bytes.push(0);
        let length = bytes.len();
        patch_length(&mut bytes, 0, length);
        // Its length and its last byte are right, and nothing else is looked at.
        *document = RawDocumentBuf::from_bytes(bytes).unwrap_or_default();
    }

    /// How many bytes it takes, its name included.
    pub fn length(&self) -> usize {
        const TYPE_AND_NUL: usize = 2;
        let named = |name: &str, value: usize| TYPE_AND_NUL + name.len() + value;
        match *self {
            Self::String(name, text) => named(name, 4 + text.len() + 1),
            Self::Boolean(name, _) => named(name, 1),
            Self::Int32(name, _) => named(name, 4),
            Self::Int64(name, _) => named(name, 8),
            Self::Document(name, value) => named(name, value.as_bytes().len()),
            Self::All(fields) => fields.as_bytes().len().saturating_sub(document::MIN_LENGTH),
        }
    }

    /// Calls `read` with its name, or with each of them, and with the value if that is a document.
    pub(crate) fn read(&self, mut read: impl FnMut(&[u8], Option<&'a RawDocument>)) {
        match *self {
            Self::Document(name, value) => read(name.as_bytes(), Some(value)),
            Self::All(fields) => {
                for element in document::elements(fields).map_while(Result::ok) {
                    read(element.name, element.document());
                }
            }
            Self::String(name, _) | Self::Boolean(name, _) | Self::Int32(name, _) | Self::Int64(name, _) => {
                read(name.as_bytes(), None);
            }
        }
    }

    fn names(&self) -> Names<'_> {
        match *self {
            Self::String(name, _)
            | Self::Boolean(name, _)
            | Self::Int32(name, _)
            | Self::Int64(name, _)
            | Self::Document(name, _) => Names::One(name),
            Self::All(document) => Names::Of(document),
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        match self.names() {
            Names::One(own) => own.as_bytes() == name,
            Names::Of(document) => {
                document::elements(document).map_while(Result::ok).any(|element| element.name == name)
            }
        }
    }

    fn append(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match *self {
            Self::String(name, text) => {
                append_name(out, 0x02, name)?;
                let at = out.len();
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(text.as_bytes());
                out.push(0);
                patch_length(out, at, text.len() + 1);
            }
            Self::Boolean(name, value) => {
                append_name(out, 0x08, name)?;
                out.push(u8::from(value));
            }
            Self::Int32(name, value) => {
                append_name(out, 0x10, name)?;
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Int64(name, value) => {
                append_name(out, 0x12, name)?;
                out.extend_from_slice(&value.to_le_bytes());
            }
            Self::Document(name, document) => {
                append_name(out, 0x03, name)?;
                out.extend_from_slice(document.as_bytes());
            }
            Self::All(document) => {
                let bytes = document.as_bytes();
                out.extend_from_slice(bytes.get(4..bytes.len() - 1).unwrap_or_default());
            }
        }
        Ok(())
    }
}

fn append_name(out: &mut Vec<u8>, tag: u8, name: &str) -> Result<(), EncodeError> {
    out.push(tag);
    append_c_string(out, name)
}

/// Refuses a name with a NUL, which would cut it off. That includes the name of a database: it is sent as a string with
/// a length, but servers keep it as one that ends in a NUL.
pub(crate) fn check_name(name: &str) -> Result<(), EncodeError> {
    // Names are short: comparing byte by byte is faster than a search for a byte.
    match name.bytes().any(|byte| byte == 0) {
        true => Err(EncodeError::NulInName { name: shown(name) }),
        false => Ok(()),
    }
}

/// Appends a text that ends in a NUL and therefore contains none.
#[inline]
pub(super) fn append_c_string(out: &mut Vec<u8>, text: &str) -> Result<(), EncodeError> {
    check_name(text)?;
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::rawdoc;

    use super::*;

    fn appended(body: &RawDocument, fields: &[Field<'_>]) -> Result<RawDocumentBuf, EncodeError> {
        let mut out = vec![7; 3];
        append_body(&mut out, body, [fields, &[]], 200)?;
        Ok(RawDocumentBuf::from_bytes(out.split_off(3)).unwrap())
    }

    #[test]
    fn fields_follow_the_bodys_own() {
        let lsid = rawdoc! { "id": 1 };
        let comment = rawdoc! { "comment": { "any": [1, "thing"] }, "let": {} };
        let fields = [
            Field::String("$db", "admin"),
            Field::Document("lsid", &lsid),
            Field::Int64("txnNumber", 7),
            Field::Boolean("autocommit", false),
            Field::Int32("maxTimeMS", -1),
            Field::All(&comment),
        ];

        assert_eq!(
            appended(&rawdoc! { "ping": 1 }, &fields).unwrap(),
            rawdoc! {
                "ping": 1, "$db": "admin", "lsid": { "id": 1 }, "txnNumber": 7_i64, "autocommit": false,
                "maxTimeMS": -1, "comment": { "any": [1, "thing"] }, "let": {},
            }
        );
        let mut document = rawdoc! { "ping": 1 };
        let length = document.as_bytes().len() + fields.iter().map(Field::length).sum::<usize>();
        assert_eq!(appended(&document, &fields).unwrap().as_bytes().len(), length);
        fields.iter().for_each(|field| field.append_to(&mut document));
        assert_eq!(document, appended(&rawdoc! { "ping": 1 }, &fields).unwrap());
        assert_eq!(appended(&rawdoc! { "ping": 1 }, &[]).unwrap(), rawdoc! { "ping": 1 });
        assert_eq!(appended(&rawdoc! {}, &[Field::Int32("a", 1)]).unwrap(), rawdoc! { "a": 1 });
    }

    #[test]
    fn a_field_is_never_there_twice() {
        let body = rawdoc! { "ping": 1, "$db": "test", "apple": "$db" };
        let twice = rawdoc! { "x": 1, "y": 2, "x": 3 };
        for (fields, name) in [
            (&[Field::String("$db", "admin")][..], "$db"),
            (&[Field::Int32("a", 1), Field::Int32("b", 1), Field::Int32("a", 1)], "a"),
            (&[Field::All(&twice)], "x"),
            (&[Field::Int32("b", 1), Field::All(&body)], "ping"),
        ] {
            assert_eq!(appended(&body, fields), Err(EncodeError::DuplicateField { name: name.into() }), "{fields:?}");
        }
        assert!(appended(&body, &[Field::Int32("a", 1), Field::Int32("app", 1), Field::Int32("apples", 1)]).is_ok());
    }

    #[test]
    fn a_body_to_which_nothing_is_appended_is_not_looked_at() {
        let strange = RawDocumentBuf::from_bytes(b"\x09\0\0\0\x99a\0\x07\0".to_vec()).unwrap();
        let nothing = rawdoc! {};

        assert_eq!(appended(&strange, &[]).unwrap(), strange);
        assert_eq!(appended(&strange, &[Field::All(&nothing)]).unwrap(), strange);
        assert!(matches!(appended(&strange, &[Field::Int32("a", 1)]), Err(EncodeError::Document(_))));
    }

    #[test]
    fn names_with_a_nul_and_bodies_above_the_limit_are_refused() {
        let body = rawdoc! { "ping": "x".repeat(170) };
        let length = body.as_bytes().len();

        assert_eq!(appended(&body, &[Field::Int32("a\0b", 1)]), Err(EncodeError::NulInName { name: "a\0b".into() }));
        assert_eq!(
            appended(&body, &[Field::Int64("maxTimeMS", 1)]),
            Err(EncodeError::CommandTooLong { length: length + 19, max: 200 })
        );
    }
}
