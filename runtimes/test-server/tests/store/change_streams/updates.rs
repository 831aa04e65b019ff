//! `updateDescription`: how an updated document differs from what it was.

use super::*;

/// The description of an update of this document.
fn description(before: Document, update: impl Into<Bson>, stage: Document) -> Document {
    let mut cluster = Cluster::new();
    cluster.write(doc! { "insert": "pets", "documents": [before] });
    let stream = cluster.watch(stage);

    cluster.write(doc! { "update": "pets", "updates": [{ "q": {}, "u": update.into() }] });

    cluster.next(&stream)[0].get_document("updateDescription").unwrap().clone()
}

fn expected(updated: Document, removed: &[&str], truncated: &[Document]) -> Document {
    doc! { "updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated }
}

#[test]
fn fields_are_named_by_their_paths() {
    let update = doc! { "$set": { "a.b": 2, "new": 1 }, "$unset": { "gone": 1, "a.c": 1 } };

    let description = description(doc! { "_id": 1, "a": { "b": 1, "c": 1 }, "gone": 1, "same": 1 }, update, doc! {});

    assert_eq!(description, expected(doc! { "a.b": 2, "new": 1 }, &["a.c", "gone"], &[]));
}

#[test]
fn elements_of_arrays_are_named_by_their_numbers() {
    let update = doc! { "$set": { "a.1": 5, "a.3": 4, "b.0.x": 2 } };

    let description = description(doc! { "_id": 1, "a": [1, 2, 3], "b": [{ "x": 1 }] }, update, doc! {});

    assert_eq!(description, expected(doc! { "a.1": 5, "a.3": 4, "b.0.x": 2 }, &[], &[]));
}

#[test]
fn an_array_that_is_shorter_is_truncated() {
    let update = vec![doc! { "$set": { "a": [1, { "x": 1 }] } }];

    let description = description(doc! { "_id": 1, "a": [1, { "x": 1 }, 3, 4] }, update, doc! {});

    assert_eq!(description, expected(doc! {}, &[], &[doc! { "field": "a", "newSize": 2 }]));
}

#[test]
fn paths_that_could_be_read_in_two_ways_are_shown_in_parts_to_those_who_ask() {
    let expanded = doc! { "showExpandedEvents": true };
    let parts = |before: Document, update: Document| {
        let description = description(before, update, expanded.clone());
        description.get_document("disambiguatedPaths").unwrap().clone()
    };

    let of_field = parts(doc! { "_id": 1, "a": { "1": 1 } }, doc! { "$set": { "a.1": 2 } });
    let in_array = parts(doc! { "_id": 1, "a": [{ "1": 1 }] }, doc! { "$set": { "a.0.1": 2 } });
    let of_array = parts(doc! { "_id": 1, "a": [1] }, doc! { "$set": { "a.0": 2 } });

    assert_eq!(of_field, doc! { "a.1": ["a", "1"] });
    assert_eq!(in_array, doc! { "a.0.1": ["a", 0, "1"] });
    assert_eq!(of_array, doc! {});
}
