//! The stage `$unwind`.

use bson::doc;

use super::*;

fn unwind(server: &mut Server, argument: impl Into<Bson>) -> Vec<Document> {
    let stage = doc! { "$unwind": argument };
    batch(&server.ok(doc! { "aggregate": "pets", "pipeline": [stage], "cursor": {} }))
}

fn pets() -> Server {
    Server::with_pets([
        doc! { "_id": 1, "x": ["a", "b"], "y": 1 },
        doc! { "_id": 2, "x": [] },
        doc! { "_id": 3, "x": "c" },
        doc! { "_id": 4 },
    ])
}

#[test]
fn a_document_for_each_element_with_the_element_in_its_place() {
    let expected =
        [doc! { "_id": 1, "x": "a", "y": 1 }, doc! { "_id": 1, "x": "b", "y": 1 }, doc! { "_id": 3, "x": "c" }];

    assert_eq!(unwind(&mut pets(), "$x"), expected);
    assert_eq!(unwind(&mut pets(), doc! { "path": "$x" }), expected);
}

#[test]
fn documents_without_elements_are_kept_on_demand_and_indexes_are_given() {
    let options = doc! { "path": "$x", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "at" };

    let expected = [
        doc! { "_id": 1, "x": "a", "y": 1, "at": 0_i64 },
        doc! { "_id": 1, "x": "b", "y": 1, "at": 1_i64 },
        doc! { "_id": 2, "at": null },
        doc! { "_id": 3, "x": "c", "at": null },
        doc! { "_id": 4, "at": null },
    ];
    assert_eq!(unwind(&mut pets(), options), expected);
}

#[test]
fn an_array_in_a_document_is_unwound_there() {
    let mut server = Server::with_pets([doc! { "_id": 1, "a": { "b": [1, 2], "c": 3 } }]);

    let unwound = unwind(&mut server, "$a.b");

    assert_eq!(unwound, [1, 2].map(|b| doc! { "_id": 1, "a": { "b": b, "c": 3 } }));
}

#[test]
fn a_path_needs_its_dollar() {
    let mut server = pets();
    let mut code =
        |argument: Bson| server.code(doc! { "aggregate": "pets", "pipeline": [{ "$unwind": argument }], "cursor": {} });

    assert_eq!(code("x".into()), 28818);
    assert_eq!(code(1.into()), 15981);
    assert_eq!(code(doc! {}.into()), 28812);
    assert_eq!(code(doc! { "path": "$x", "includeArrayIndex": "$at" }.into()), 28822);
}
