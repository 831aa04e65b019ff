//! Documents in log messages, and as people read them: relaxed Extended JSON (LOG-6).
//!
//! Only written, never read, and only for people and their tools: parts of a document that cannot be read are left out.

use alloc::format;
use alloc::string::{String, ToString};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::{RawArray, RawBsonRef, RawDocument};

/// `document` as relaxed Extended JSON.
pub fn extended_json(document: &RawDocument) -> String {
    let mut out = String::new();
    write_document(&mut out, document);
    out
}

fn write_document(out: &mut String, document: &RawDocument) {
    let fields = document.iter().map_while(Result::ok);
    list(out, ['{', '}'], fields, |out, (key, value)| {
        write_text(out, key.as_str());
        out.push(':');
        write_value(out, value);
    });
}

fn write_array(out: &mut String, array: &RawArray) {
    list(out, ['[', ']'], array.into_iter().map_while(Result::ok), write_value);
}

fn write_value(out: &mut String, value: RawBsonRef<'_>) {
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
            let (base64, subtype) = (STANDARD.encode(binary.bytes), u8::from(binary.subtype));
            out.push_str(&format!("{{\"base64\":\"{base64}\",\"subType\":\"{subtype:02x}\"}}"));
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
        RawBsonRef::Undefined | RawBsonRef::DbPointer(_) => out.push_str("{\"$undefined\":true}"),
    }
}

fn wrap(out: &mut String, key: &str, write: impl FnOnce(&mut String)) {
    out.push_str(&format!("{{\"{key}\":"));
    write(out);
    out.push('}');
}

fn list<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(close);
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::oid::ObjectId;
    use bson::{DateTime, rawdoc};

    use super::extended_json;

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
}
