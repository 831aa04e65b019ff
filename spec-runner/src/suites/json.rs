//! JSON text to a JSON value, more strictly than `serde_json` does it.
//!
//! Of two entries with the same key `serde_json` keeps the last. In a test that would silently drop the author's words,
//! so here it is a problem.

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::problem::Problem;

/// Reads `text`; a problem names the line and the column.
pub fn parse(text: &str) -> Result<Value, Problem> {
    let Strict(value) = serde_json::from_str(text).map_err(|error| {
        let position = format!("line {} column {}", error.line(), error.column());
        let message = error.to_string();
        let message = message.strip_suffix(&format!(" at {position}")).unwrap_or(&message);
        Problem::of_file(format!("{position}: {message}"))
    })?;
    Ok(value)
}

/// A JSON value in which each object has each key once.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key \"{key}\" stands here twice")));
            }
            let Strict(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn problem(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn says_where_text_stops_being_json() {
        assert_eq!(problem("{\n  \"a\": ,\n}"), "line 2 column 8: expected value");
        assert!(problem("{\"a\": 1").starts_with("line 1 column 7: EOF"), "{}", problem("{\"a\": 1"));
    }

    #[test]
    fn refuses_a_key_that_stands_twice() {
        assert!(problem("{\"a\": {\"b\": 1, \"b\": 1}}").ends_with("the key \"b\" stands here twice"));
        assert!(parse("[{\"b\": 1}, {\"b\": 1}]").is_ok());
    }
}
