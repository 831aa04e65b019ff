//! `$expr`, and the variables of `let`.

use bson::doc;

use super::*;

fn equals(value: impl Into<Bson>) -> Document {
    doc! { "$expr": { "$eq": ["$x", value.into()] } }
}

#[test]
fn an_expression_compares_the_fields_of_a_document() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": 1, "y": 1 }, doc! { "_id": 2, "x": 1, "y": 2 }]);

    assert_eq!(server.ids(equals("$y")), [1]);
    assert_eq!(server.ids(equals(1)), [1, 2]);
    assert_eq!(server.ids(equals(Bson::Null)), [0; 0]);
    assert_eq!(server.ids(doc! { "$expr": "$y" }), [1, 2]);
}

#[test]
fn commands_have_variables() {
    let mut server = Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id, "x": id }));
    let variables = doc! { "value": 2, "nested": { "value": 3 } };

    let found = server.find(doc! { "find": "pets", "filter": equals("$$value"), "let": variables.clone() });
    let update = doc! { "q": { "$or": [equals("$$value")] }, "u": [{ "$set": { "y": "$$nested.value" } }] };
    server.ok(doc! { "update": "pets", "updates": [update], "let": variables.clone() });
    let stage = doc! { "$match": equals("$$nested.value") };
    let piped = server.ok(doc! { "aggregate": "pets", "pipeline": [stage], "cursor": {}, "let": variables.clone() });
    server.ok(doc! { "findAndModify": "pets", "query": equals("$$value"), "remove": true, "let": variables.clone() });
    server.ok(doc! { "delete": "pets", "deletes": [{ "q": equals("$$nested.value"), "limit": 0 }], "let": variables });

    assert_eq!((ids(&found), ids(&batch(&piped))), (vec![2], vec![3]));
    assert_eq!(ids(&server.pets()), [1]);
}

#[test]
fn a_variable_that_is_not_defined_is_an_error() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    let failure = server.fails(doc! { "find": "pets", "filter": equals("$$other") });

    assert_eq!(failure, (17276, "Location17276", "Use of undefined variable: other".to_owned()));
    assert_eq!(server.code(doc! { "find": "pets", "filter": equals("$$NOW") }), 115);
    assert_eq!(server.code(doc! { "find": "pets", "filter": { "$expr": { "$eq": [1] } } }), 16020);
}
