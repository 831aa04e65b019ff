//! The Match function of the CMAP format (FMT-1), which the SDAM format uses too: does an actual value have everything that
//! an expected one asks for?
//!
//! Expected values are patterns. 42 and "42" stand for anything but null. An array matches one that is as long or
//! longer, item by item; an object matches one with the same or more keys. Everything else must be of the same JSON type
//! and equal, numbers by value: 1 is 1.0, and is not "1".

use serde_json::{Number, Value};

use super::mismatch::Mismatch;
use super::place::Place;

/// Compares `actual` with the pattern `expected`.
pub fn compare(expected: &Value, actual: &Value) -> Result<(), Mismatch> {
    compare_at(&Place::top(), expected, Some(actual))
}

/// `expected` is a pattern in words; `actual` is the value at `place`, if there is one.
pub(super) fn mismatch(place: &Place, expected: &str, actual: Option<&Value>) -> Mismatch {
    Mismatch::new(place, expected, actual.map(Value::to_string))
}

/// Whether `value` is one of the two ways in which the format writes "anything but null" (FMT-1).
pub(crate) fn is_anything(value: &Value) -> bool {
    value.as_f64() == Some(42.0) || value.as_str() == Some("42")
}

fn compare_at(place: &Place, expected: &Value, actual: Option<&Value>) -> Result<(), Mismatch> {
    if is_anything(expected) {
        return match actual {
            None | Some(Value::Null) => Err(mismatch(place, "anything but null", actual)),
            Some(_) => Ok(()),
        };
    }
    let equal = match (expected, actual) {
        (Value::Array(expected), Some(Value::Array(actual))) => {
            return expected
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| compare_at(&place.index(index), item, actual.get(index)));
        }
        (Value::Object(expected), Some(Value::Object(actual))) => {
            return expected.iter().try_for_each(|(key, value)| compare_at(&place.key(key), value, actual.get(key)));
        }
        (Value::Number(expected), Some(Value::Number(actual))) => are_equal(expected, actual),
        (expected, Some(actual)) => expected == actual,
        (_, None) => false,
    };
    if equal { Ok(()) } else { Err(mismatch(place, &expected.to_string(), actual)) }
}

/// Integers are compared as such, for a float cannot tell all of them apart.
fn are_equal(left: &Number, right: &Number) -> bool {
    left == right || (left.is_f64() || right.is_f64()) && left.as_f64() == right.as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::compare;

    #[track_caller]
    fn matches(expected: Value, actual: Value) {
        compare(&expected, &actual).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }

    #[track_caller]
    fn differs(expected: Value, actual: Value, why: &str) {
        assert_eq!(compare(&expected, &actual).unwrap_err().to_string(), why);
    }

    #[test]
    fn an_object_may_have_more_keys() {
        matches(json!({ "a": 1 }), json!({ "a": 1, "b": 2 }));
        differs(json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), "b: expected 2, got nothing");
        differs(json!({ "a": { "b": true } }), json!({ "a": { "b": false } }), "a.b: expected true, got false");
        matches(json!({}), json!({ "a": null }));
    }

    #[test]
    fn an_array_is_compared_by_index_and_may_be_longer() {
        matches(json!([1, 2]), json!([1, 2, 3]));
        differs(json!([1, 2]), json!([2, 1]), "[0]: expected 1, got 2");
        differs(json!([1, 2]), json!([1]), "[1]: expected 2, got nothing");
        differs(json!([{ "a": [1] }]), json!([{ "a": ["1"] }]), "[0].a[0]: expected 1, got \"1\"");
    }

    #[test]
    fn both_spellings_of_42_match_anything_but_null() {
        for any in [json!(42), json!("42"), json!(42.0)] {
            for actual in [json!(0), json!("x"), json!(false), json!([]), json!({}), json!(42)] {
                matches(any.clone(), actual);
            }
            differs(any.clone(), Value::Null, "expected anything but null, got null");
            differs(json!({ "a": any }), json!({}), "a: expected anything but null, got nothing");
        }
    }

    #[test]
    fn types_must_agree() {
        differs(json!(1), json!("1"), "expected 1, got \"1\"");
        differs(json!("true"), json!(true), "expected \"true\", got true");
        differs(json!(0), json!(false), "expected 0, got false");
        differs(json!([]), json!({}), "expected [], got {}");
        differs(json!({}), json!([]), "expected {}, got []");
        differs(json!(0), Value::Null, "expected 0, got null");
        matches(Value::Null, Value::Null);
    }

    #[test]
    fn numbers_are_compared_by_value() {
        matches(json!(1), json!(1.0));
        matches(json!(1.0), json!(1));
        matches(json!(u64::MAX), json!(u64::MAX));
        differs(json!(1), json!(1.5), "expected 1, got 1.5");
        let (one, next) = (9_007_199_254_740_993_u64, 9_007_199_254_740_992_u64);
        differs(json!(one), json!(next), "expected 9007199254740993, got 9007199254740992");
    }
}
