//! The order of BSON values: by kind first, then by value; the numbers of all types are one kind.
//!
//! Values are equal if the order says so: `1` and `1.0` are; documents with the same fields in another order are not.

use std::cmp::Ordering;

use bson::spec::ElementType;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};

use super::arguments::fields;
use super::number::Number;

/// Compares two values.
pub(super) fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    kind(a).cmp(&kind(b)).then_with(|| compare_of_a_kind(a, b))
}

/// Compares two documents: field by field, of each its kind, its name, its value.
pub(super) fn compare_documents(a: &RawDocument, b: &RawDocument) -> Ordering {
    let (mut a, mut b) = (fields(a), fields(b));
    loop {
        let ((a_name, a), (b_name, b)) = match (a.next(), b.next()) {
            (Some(a), Some(b)) => (a, b),
            (a, b) => return a.is_some().cmp(&b.is_some()),
        };
        let order = kind(a).cmp(&kind(b)).then_with(|| a_name.cmp(b_name)).then_with(|| compare_of_a_kind(a, b));
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Whether two values are of one kind; otherwise neither is greater than the other to a query.
pub(super) fn are_comparable(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    kind(a) == kind(b)
}

/// The place of a value's kind in the order.
fn kind(value: RawBsonRef<'_>) -> u8 {
    match value.element_type() {
        ElementType::MinKey => 0,
        ElementType::Undefined => 1,
        ElementType::Null => 2,
        ElementType::Double | ElementType::Int32 | ElementType::Int64 | ElementType::Decimal128 => 3,
        ElementType::String | ElementType::Symbol => 4,
        ElementType::EmbeddedDocument => 5,
        ElementType::Array => 6,
        ElementType::Binary => 7,
        ElementType::ObjectId => 8,
        ElementType::Boolean => 9,
        ElementType::DateTime => 10,
        ElementType::Timestamp => 11,
        ElementType::RegularExpression => 12,
        ElementType::DbPointer => 13,
        ElementType::JavaScriptCode => 14,
        ElementType::JavaScriptCodeWithScope => 15,
        ElementType::MaxKey => 16,
    }
}

fn compare_of_a_kind(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    if let (Some(a), Some(b)) = (Number::read(a), Number::read(b)) {
        return a.compare(b);
    }
    if let (Some(a), Some(b)) = (text(a), text(b)) {
        return a.cmp(b);
    }
    match (a, b) {
        (RawBsonRef::Document(a), RawBsonRef::Document(b)) => compare_documents(a, b),
        (RawBsonRef::Array(a), RawBsonRef::Array(b)) => {
            let (mut a, mut b) = (super::arguments::values(a), super::arguments::values(b));
            loop {
                let order = match (a.next(), b.next()) {
                    (Some(a), Some(b)) => compare(a, b),
                    (a, b) => return a.is_some().cmp(&b.is_some()),
                };
                if order != Ordering::Equal {
                    return order;
                }
            }
        }
        (RawBsonRef::Binary(a), RawBsonRef::Binary(b)) => {
            let key = |subtype| u8::from(subtype);
            a.bytes.len().cmp(&b.bytes.len()).then(key(a.subtype).cmp(&key(b.subtype))).then(a.bytes.cmp(b.bytes))
        }
        (RawBsonRef::ObjectId(a), RawBsonRef::ObjectId(b)) => a.cmp(&b),
        (RawBsonRef::Boolean(a), RawBsonRef::Boolean(b)) => a.cmp(&b),
        (RawBsonRef::DateTime(a), RawBsonRef::DateTime(b)) => a.cmp(&b),
        (RawBsonRef::Timestamp(a), RawBsonRef::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (RawBsonRef::RegularExpression(a), RawBsonRef::RegularExpression(b)) => {
            (a.pattern, a.options).cmp(&(b.pattern, b.options))
        }
        // Values of old and rare kinds are put into arrays and compared as bytes.
        (a, b) => RawArrayBuf::from_iter([a]).as_bytes().cmp(RawArrayBuf::from_iter([b]).as_bytes()),
    }
}

fn text(value: RawBsonRef<'_>) -> Option<&str> {
    value.as_str().or_else(|| value.as_symbol())
}

/// A value that can be a key of the order: in indexes, and among values met before.
#[derive(Clone, Debug)]
pub(super) struct Ordered(pub(super) RawBson);

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.0.as_raw_bson_ref(), other.0.as_raw_bson_ref())
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

#[cfg(test)]
mod tests {

    use bson::{rawbson, rawdoc};

    use super::*;

    #[test]
    fn values_are_ordered_by_kind_then_value() {
        let ascending = [
            RawBson::MinKey,
            RawBson::Null,
            rawbson!(-1.5),
            rawbson!(2),
            rawbson!(""),
            rawbson!("a"),
            RawBson::Symbol("b".into()),
            rawbson!({}),
            rawbson!({ "b": 1 }),
            rawbson!({ "b": 1, "a": 0 }),
            rawbson!({ "a": "x" }),
            rawbson!([]),
            rawbson!([1]),
            rawbson!([1, 2]),
            rawbson!([2]),
            rawbson!(false),
            rawbson!(true),
            RawBson::MaxKey,
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a.as_raw_bson_ref(), b.as_raw_bson_ref()), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn documents_are_equal_across_numeric_types_but_not_across_orders_of_fields() {
        let document = rawdoc! { "a": 1, "b": [1_i64] };

        assert_eq!(compare_documents(&document, &rawdoc! { "a": 1.0, "b": [1] }), Ordering::Equal);
        assert_ne!(compare_documents(&document, &rawdoc! { "b": [1], "a": 1 }), Ordering::Equal);
    }
}
