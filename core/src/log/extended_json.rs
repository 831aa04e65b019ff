//! Documents in log messages, and as people read them: relaxed Extended JSON (LOG-6).
//!
//! Only written, never read, and only for people and their tools: values that cannot be read are left out, and a text that is not UTF-8
//! has the replacement character instead.

use alloc::format;
use alloc::string::{String, ToString};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::oid::ObjectId;
use bson::raw::RawIter;
use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::MaxDocumentLength;
use crate::wire::document::elements;

/// `document` as relaxed Extended JSON.
pub fn extended_json(document: &RawDocument) -> String {
    beginning(document, usize::MAX)
}

impl MaxDocumentLength {
    /// `document` as relaxed Extended JSON, cut to this length (LOG-5, LOG-6). Of a long one hardly more is written than is shown.
    pub fn extended_json(self, document: &RawDocument) -> String {
        let Self(most) = self;
        self.cut(beginning(document, most))
    }
}

/// The whole text of `document`, or at least its first `most` bytes and one more. What comes behind those may be wrong.
fn beginning(document: &RawDocument, most: usize) -> String {
    let mut out = Text { written: String::new(), most };
    write_document(&mut out, document);
    out.written
}

/// A text of which the first `most` bytes are shown, and whether there are more.
struct Text {
    written: String,
    most: usize,
}

impl Text {
    fn push(&mut self, c: char) {
        self.written.push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.written.push_str(text);
    }

    /// Whether nothing that follows is shown.
    fn is_full(&self) -> bool {
        self.written.len() > self.most
    }
}

fn write_document(out: &mut Text, document: &RawDocument) {
    out.push('{');
    write_values(out, document.iter_elements(), true);
    out.push('}');
}

fn write_array(out: &mut Text, array: &RawArray) {
    out.push('[');
    write_values(out, array.iter_elements(), false);
    out.push(']');
}

/// Behind a name or a length that is wrong nothing can be found: there the elements end.
fn write_values(out: &mut Text, elements: RawIter<'_>, are_named: bool) {
    let mut separator = "";
    for element in elements.filter_map(Result::ok) {
        if out.is_full() {
            return;
        }
        let lossy;
        let value = match element.value() {
            Ok(value) => value,
            Err(_) => match element.value_utf8_lossy() {
                Ok(readable) => {
                    lossy = readable;
                    lossy.as_raw_bson_ref()
                }
                Err(_) => continue,
            },
        };
        out.push_str(separator);
        separator = ",";
        if are_named {
            write_text(out, element.key().as_str());
            out.push(':');
        }
        write_value(out, value);
    }
}

fn write_value(out: &mut Text, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::Double(number) if number.is_finite() => out.push_str(&format!("{number:?}")),
        RawBsonRef::Double(number) => wrap(out, "$numberDouble", |out| {
            let infinity = if number > 0.0 { "Infinity" } else { "-Infinity" };
            write_text(out, if number.is_nan() { "NaN" } else { infinity });
        }),
        RawBsonRef::String(text) => write_text(out, text),
        RawBsonRef::Array(array) => write_array(out, array),
        RawBsonRef::Document(document) => write_document(out, document),
        RawBsonRef::Boolean(is) => out.push_str(if is { "true" } else { "false" }),
        RawBsonRef::Null => out.push_str("null"),
        RawBsonRef::Int32(number) => out.push_str(&number.to_string()),
        RawBsonRef::Int64(number) => out.push_str(&number.to_string()),
        RawBsonRef::DateTime(date) => wrap(out, "$date", |out| match date.try_to_rfc3339_string() {
            // Years that four digits cannot write have no relaxed form.
            Ok(text) if (0..253_402_300_800_000).contains(&date.timestamp_millis()) => write_text(out, &text),
            Ok(_) | Err(_) => {
                wrap(out, "$numberLong", |out| write_text(out, &date.timestamp_millis().to_string()));
            }
        }),
        RawBsonRef::ObjectId(id) => wrap(out, "$oid", |out| write_text(out, &id.to_hex())),
        RawBsonRef::Timestamp(timestamp) => wrap(out, "$timestamp", |out| {
            out.push_str(&format!("{{\"t\":{},\"i\":{}}}", timestamp.time, timestamp.increment));
        }),
        RawBsonRef::Binary(binary) => wrap(out, "$binary", |out| {
            out.push_str("{\"base64\":\"");
            // Three bytes are four characters.
            let needed = (out.most.saturating_sub(out.written.len()) / 4 + 1) * 3;
            STANDARD.encode_string(binary.bytes.get(..needed).unwrap_or(binary.bytes), &mut out.written);
            out.push_str(&format!("\",\"subType\":\"{:02x}\"}}", u8::from(binary.subtype)));
        }),
        RawBsonRef::Decimal128(number) => wrap(out, "$numberDecimal", |out| write_text(out, &number.to_string())),
        RawBsonRef::MinKey => out.push_str("{\"$minKey\":1}"),
        RawBsonRef::MaxKey => out.push_str("{\"$maxKey\":1}"),
        RawBsonRef::JavaScriptCode(code) => wrap(out, "$code", |out| write_text(out, code)),
        RawBsonRef::Symbol(text) => wrap(out, "$symbol", |out| write_text(out, text)),
        RawBsonRef::RegularExpression(expression) => wrap(out, "$regularExpression", |out| {
            out.push_str("{\"pattern\":");
            write_text(out, expression.pattern.as_str());
            out.push_str(",\"options\":");
            write_text(out, expression.options.as_str());
            out.push('}');
        }),
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            out.push_str("{\"$code\":");
            write_text(out, code.code);
            out.push_str(",\"$scope\":");
            write_document(out, code.scope);
            out.push('}');
        }
        // Types that were given up long ago.
        RawBsonRef::Undefined => out.push_str("{\"$undefined\":true}"),
        RawBsonRef::DbPointer(_) => wrap(out, "$dbPointer", |out| {
            let (namespace, id) = parts_of_pointer(value).unwrap_or_default();
            out.push_str("{\"$ref\":");
            write_text(out, &namespace);
            out.push_str(&format!(",\"$id\":{{\"$oid\":\"{}\"}}}}", ObjectId::from_bytes(id).to_hex()));
        }),
    }
}

/// The namespace and the id of a database pointer, of which bson shows only the bytes.
fn parts_of_pointer(pointer: RawBsonRef<'_>) -> Option<(String, [u8; 12])> {
    let mut alone = RawDocumentBuf::new();
    alone.append(cstr!("pointer"), pointer);
    let (text, id) = elements(&alone).next()?.ok()?.value.split_last_chunk()?;
    // A length comes before the namespace, and a NUL behind it.
    let namespace = text.get(4..text.len().checked_sub(1)?)?;
    Some((String::from_utf8_lossy(namespace).into_owned(), *id))
}

fn wrap(out: &mut Text, key: &str, write: impl FnOnce(&mut Text)) {
    out.push_str(&format!("{{\"{key}\":"));
    write(out);
    out.push('}');
}

fn write_text(out: &mut Text, text: &str) {
    out.push('"');
    for c in text.chars() {
        if out.is_full() {
            return;
        }
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::spec::BinarySubtype;
    use bson::{Binary, DateTime, RawArrayBuf, rawdoc};

    use super::*;

    #[test]
    fn the_types_of_a_hello_have_their_relaxed_form() {
        let hello = rawdoc! {
            "ok": 1.0,
            "isWritablePrimary": true,
            "topologyVersion": { "processId": ObjectId::from_bytes([1; 12]), "counter": 6_i64 },
            "hosts": ["a:1", "b\"\n"],
            "localTime": DateTime::from_millis(1_700_000_000_123),
            "setName": null,
        };

        assert_eq!(
            extended_json(&hello),
            "{\"ok\":1.0,\"isWritablePrimary\":true,\"topologyVersion\":{\"processId\":{\"$oid\":\
             \"010101010101010101010101\"},\"counter\":6},\"hosts\":[\"a:1\",\"b\\\"\\u000a\"],\"localTime\":{\"$date\":\
             \"2023-11-14T22:13:20.123Z\"},\"setName\":null}"
        );
    }

    #[test]
    fn what_no_number_of_json_is_has_a_form_of_its_own() {
        let odd = rawdoc! { "nan": f64::NAN, "past": DateTime::from_millis(-1) };

        let expected = "{\"nan\":{\"$numberDouble\":\"NaN\"},\"past\":{\"$date\":{\"$numberLong\":\"-1\"}}}";
        assert_eq!(extended_json(&odd), expected);
    }

    /// A document with a field `x` of this type and these bytes, and another one behind it.
    fn before_another(tag: u8, value: &[u8]) -> RawDocumentBuf {
        let content = [&[tag, b'x', 0][..], value, b"\x0ay\0\0"].concat();
        let length = i32::try_from(4 + content.len()).unwrap();
        RawDocumentBuf::from_bytes([&length.to_le_bytes()[..], &content[..]].concat()).unwrap()
    }

    #[test]
    fn a_value_that_cannot_be_read_hides_none_behind_it() {
        let text: &[u8] = b"\x04\0\0\0a\xffb\0";
        // Its second length is wrong.
        let binary: &[u8] = b"\x04\0\0\0\x02\x09\0\0\0";
        let array = before_another(0x02, text);
        for (tag, value, expected) in [
            (0x02, text, "{\"x\":\"a\u{fffd}b\",\"y\":null}"),
            (0x0d, text, "{\"x\":{\"$code\":\"a\u{fffd}b\"},\"y\":null}"),
            (0x05, binary, "{\"y\":null}"),
            (0x04, array.as_bytes(), "{\"x\":[\"a\u{fffd}b\",null],\"y\":null}"),
        ] {
            assert_eq!(extended_json(&before_another(tag, value)), expected);
        }
    }

    #[test]
    fn a_database_pointer_names_what_it_points_to() {
        let pointer = before_another(0x0c, &[&b"\x05\0\0\0db.c\0"[..], &[1; 12]].concat());

        let oid = "{\"$oid\":\"010101010101010101010101\"}";
        let expected = format!("{{\"x\":{{\"$dbPointer\":{{\"$ref\":\"db.c\",\"$id\":{oid}}}}},\"y\":null}}");
        assert_eq!(extended_json(&pointer), expected);
    }

    #[test]
    fn a_document_is_cut_where_its_whole_text_would_be_log_5() {
        let binary = |length| Binary { subtype: BinarySubtype::Generic, bytes: vec![7; length] };
        let document = rawdoc! {
            "text": "aä€\"\n", "empty": "", "numbers": [1, 2.5, { "x": null }],
            "short": binary(4), "long": binary(40),
            "in": { "date": DateTime::from_millis(1_700_000_000_123), "id": ObjectId::from_bytes([1; 12]) },
        };
        let whole = extended_json(&document);

        for most in 0..whole.len() + 2 {
            let most = MaxDocumentLength(most);
            assert_eq!(most.extended_json(&document), most.cut(whole.clone()), "{most:?}");
        }
    }

    #[test]
    fn of_a_long_document_hardly_more_is_written_than_is_shown() {
        const LENGTH: usize = 4 << 20;
        let binary = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; LENGTH] };
        let array: RawArrayBuf = vec![7_i64; LENGTH / 16].into_iter().collect();
        let most = MaxDocumentLength(1000);
        for document in [rawdoc! { "x": "ä".repeat(LENGTH / 2) }, rawdoc! { "x": binary }, rawdoc! { "x": array }] {
            let shown = most.extended_json(&document);

            assert_eq!(shown, most.cut(extended_json(&document)));
            assert!(shown.capacity() < 8000, "{}", shown.capacity());
        }
    }
}
