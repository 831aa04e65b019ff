//! delete.

use bson::doc;

use super::*;

fn three() -> Server {
    Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id, "old": id > 1 }))
}

#[test]
fn one_document_or_all_that_match() {
    let mut server = three();

    let one = server.ok(doc! { "delete": "pets", "deletes": [{ "q": { "old": true }, "limit": 1 }] });
    assert_eq!(one, doc! { "n": 1 });
    assert_eq!(server.ids(doc! {}), [1, 3]);
    let all = server.ok(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0 }] });
    assert_eq!(all, doc! { "n": 2 });
    assert_eq!(server.ids(doc! {}), [0_i32; 0]);
}

#[test]
fn statements_count_together_and_fail_apart() {
    let mut server = three();
    let statements = vec![
        doc! { "q": { "_id": 1 }, "limit": 1 },
        doc! { "q": { "$bad": 1 }, "limit": 1 },
        doc! { "q": {}, "limit": 2 },
        doc! { "q": { "_id": 2 }, "limit": 0 },
    ];

    let ordered = server.ok(doc! { "delete": "pets", "deletes": statements.clone() });
    assert_eq!((ordered.get_i32("n").ok(), write_errors(&ordered)), (Some(1), vec![(2, 1)]));
    let unordered = server.ok(doc! { "delete": "pets", "deletes": statements, "ordered": false });
    assert_eq!((unordered.get_i32("n").ok(), write_errors(&unordered)), (Some(1), vec![(2, 1), (9, 2)]));
}

#[test]
fn a_deleted_id_is_free_again() {
    let mut server = three();

    server.ok(doc! { "delete": "pets", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });

    assert_eq!(server.ok(doc! { "insert": "pets", "documents": [{ "_id": 1 }] }), doc! { "n": 1 });
}

#[test]
fn nothing_is_deleted_where_nothing_is() {
    let mut server = Server::default();

    assert_eq!(server.ok(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0 }] }), doc! { "n": 0 });
    assert_eq!(server.code(doc! { "delete": "pets", "deletes": [] }), 16);
    assert_eq!(server.code(doc! { "delete": "pets", "deletes": [{ "q": {}, "limit": 0, "why": 1 }] }), 40415);
}
