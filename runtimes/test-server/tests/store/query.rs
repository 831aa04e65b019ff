//! Which documents a filter matches.

use bson::{Bson, Decimal128, doc, oid::ObjectId};

use super::*;

/// The `_id`s, counted from 0, of those documents that match.
fn matching(documents: &[Document], filter: Document) -> Vec<i32> {
    let mut server = Server::default();
    let documents: Vec<_> = documents
        .iter()
        .zip(0..)
        .map(|(document, id)| {
            let mut with_id = doc! { "_id": id };
            with_id.extend(document.clone());
            with_id
        })
        .collect();
    server.ok(doc! { "insert": "pets", "documents": documents });
    server.ids(filter)
}

#[test]
fn equality_is_of_values_not_of_numeric_types() {
    let decimal: Decimal128 = "1.0".parse().unwrap();
    let documents = [
        doc! { "x": 1 },
        doc! { "x": 1_i64 },
        doc! { "x": 1.0 },
        doc! { "x": decimal },
        doc! { "x": "1" },
        doc! { "x": 1.5 },
    ];

    for one in [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0), Bson::Decimal128(decimal)] {
        assert_eq!(matching(&documents, doc! { "x": one.clone() }), [0, 1, 2, 3], "{one}");
    }
}

#[test]
fn null_is_equal_to_what_is_missing() {
    let documents = [doc! { "x": null }, doc! {}, doc! { "x": 0 }, doc! { "x": [null] }, doc! { "x": [] }];

    assert_eq!(matching(&documents, doc! { "x": null }), [0, 1, 3]);
    assert_eq!(matching(&documents, doc! { "x": { "$ne": null } }), [2, 4]);
    assert_eq!(matching(&documents, doc! { "x": { "$in": [null, 0] } }), [0, 1, 2, 3]);
    assert_eq!(matching(&documents, doc! { "x": { "$gte": null } }), [0, 1, 3]);
}

#[test]
fn an_array_matches_as_a_whole_and_by_its_elements() {
    let documents = [doc! { "x": [1, 2] }, doc! { "x": [2] }, doc! { "x": [[1, 2]] }, doc! { "x": 2 }];

    assert_eq!(matching(&documents, doc! { "x": 2 }), [0, 1, 3]);
    assert_eq!(matching(&documents, doc! { "x": [1, 2] }), [0, 2]);
    assert_eq!(matching(&documents, doc! { "x": { "$ne": 2 } }), [2]);
    assert_eq!(matching(&documents, doc! { "x": { "$size": 1 } }), [1, 2]);
    assert_eq!(matching(&documents, doc! { "x": { "$all": [1, 2] } }), [0]);
    assert_eq!(matching(&documents, doc! { "x.0": 2 }), [1]);
}

#[test]
fn a_document_matches_as_a_whole_and_by_dotted_paths() {
    let documents =
        [doc! { "x": { "a": 1, "b": 2 } }, doc! { "x": { "b": 2, "a": 1 } }, doc! { "x": [{ "a": 1 }, { "b": 2 }] }];

    assert_eq!(matching(&documents, doc! { "x": { "a": 1, "b": 2 } }), [0]);
    assert_eq!(matching(&documents, doc! { "x.a": 1, "x.b": 2 }), [0, 1, 2]);
    assert_eq!(matching(&documents, doc! { "x": { "$elemMatch": { "a": 1, "b": 2 } } }), [0_i32; 0]);
    assert_eq!(matching(&documents, doc! { "x": { "$elemMatch": { "a": 1 } } }), [2]);
}

#[test]
fn comparisons_stay_within_a_kind() {
    let documents =
        [doc! { "x": 1 }, doc! { "x": 2.5 }, doc! { "x": "2" }, doc! {}, doc! { "x": [1, 9] }, doc! { "x": f64::NAN }];

    assert_eq!(matching(&documents, doc! { "x": { "$gt": 1 } }), [1, 4]);
    assert_eq!(matching(&documents, doc! { "x": { "$gte": 1, "$lt": 2 } }), [0, 4]);
    assert_eq!(matching(&documents, doc! { "x": { "$lte": 2.5 } }), [0, 1, 4]);
    assert_eq!(matching(&documents, doc! { "x": { "$lt": "a" } }), [2]);
    assert_eq!(matching(&documents, doc! { "x": { "$gte": f64::NAN } }), [5]);
    assert_eq!(matching(&documents, doc! { "x": { "$lt": Bson::MaxKey } }), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn operators_combine() {
    let documents: Vec<_> = (0..6).map(|x| doc! { "x": x, "even": x % 2 == 0 }).collect();

    assert_eq!(matching(&documents, doc! { "$or": [{ "x": 1 }, { "x": { "$gt": 4 } }] }), [1, 5]);
    assert_eq!(matching(&documents, doc! { "$and": [{ "x": { "$gt": 1 } }, { "even": true }] }), [2, 4]);
    assert_eq!(matching(&documents, doc! { "$nor": [{ "even": true }, { "x": 1 }] }), [3, 5]);
    assert_eq!(matching(&documents, doc! { "x": { "$not": { "$gt": 1 } } }), [0, 1]);
    assert_eq!(matching(&documents, doc! { "x": { "$nin": [0, 1, 2, 3] } }), [4, 5]);
    assert_eq!(matching(&documents, doc! { "x": { "$mod": [3, 1] }, "$comment": "why" }), [1, 4]);
}

#[test]
fn types_and_existence() {
    let documents = [doc! { "x": 1 }, doc! { "x": "a" }, doc! { "x": null }, doc! {}, doc! { "x": 1_i64 }];

    assert_eq!(matching(&documents, doc! { "x": { "$exists": true } }), [0, 1, 2, 4]);
    assert_eq!(matching(&documents, doc! { "x": { "$exists": 0 } }), [3]);
    assert_eq!(matching(&documents, doc! { "x": { "$type": "number" } }), [0, 4]);
    assert_eq!(matching(&documents, doc! { "x": { "$type": [2, 10] } }), [1, 2]);
}

#[test]
fn simple_regular_expressions() {
    let documents = [doc! { "x": "system.users" }, doc! { "x": "users" }, doc! { "x": ["Users"] }, doc! { "x": 1 }];

    assert_eq!(matching(&documents, doc! { "x": regex("users", "") }), [0, 1]);
    assert_eq!(matching(&documents, doc! { "x": { "$regex": "^u", "$options": "i" } }), [1, 2]);
    assert_eq!(matching(&documents, doc! { "x": { "$regex": r"^(?!system\.)" } }), [1, 2]);
    assert_eq!(matching(&documents, doc! { "x": { "$not": regex("^users$", "") } }), [0, 2, 3]);
    assert_eq!(matching(&documents, doc! { "x": { "$in": [regex("^sys", ""), 1] } }), [0, 3]);
}

#[test]
fn a_database_reference_is_a_value() {
    let reference = doc! { "$ref": "people", "$id": ObjectId::from_bytes([1; 12]) };

    assert_eq!(matching(&[doc! { "x": reference.clone() }, doc! { "x": 1 }], doc! { "x": reference }), [0]);
}

#[test]
fn unknown_operators_are_errors() {
    let mut server = Server::with_pets([doc! {}]);
    let mut fails = |filter: Document| server.fails(doc! { "find": "pets", "filter": filter });

    assert_eq!(fails(doc! { "x": { "$fuzzy": 1 } }), (2, "BadValue", "unknown operator: $fuzzy".into()));
    let (code, _, message) = fails(doc! { "$fuzzy": 1 });
    assert_eq!((code, &message[..34]), (2, "unknown top level operator: $fuzzy"));
    assert_eq!(fails(doc! { "$or": [] }).2, "$or must be a nonempty array");
    assert_eq!(fails(doc! { "$and": [1] }).2, "$or/$and/$nor entries need to be full objects");
    assert_eq!(fails(doc! { "x": { "$in": 1 } }).2, "$in needs an array");
    assert_eq!(fails(doc! { "x": { "$gt": 1, "y": 2 } }).2, "unknown operator: y");
    assert_eq!(fails(doc! { "$where": "true" }).0, 115);
    assert_eq!(fails(doc! { "x": { "$regex": "a|b" } }).0, 115);
}
