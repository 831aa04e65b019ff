//! update, and the modifiers.

use bson::{Bson, doc};

use super::*;

/// The pet `_id: 1` after an update of it.
fn updated(pet: Document, update: Document) -> Document {
    let mut server = Server::with_pets([pet]);
    let reply = server.ok(doc! { "update": "pets", "updates": [{ "q": { "_id": 1 }, "u": update }] });
    assert_eq!(write_errors(&reply), []);
    server.pets().remove(0)
}

/// The code of the write error of an update.
fn error(pet: Document, update: impl Into<Bson>) -> i32 {
    let mut server = Server::with_pets([pet]);
    let reply = server.ok(doc! { "update": "pets", "updates": [{ "q": { "_id": 1 }, "u": update.into() }] });
    assert_eq!(reply.get_i32("nModified").ok(), Some(0));
    write_errors(&reply)[0].0
}

#[test]
fn what_does_not_change_is_matched_and_not_modified() {
    let mut server = Server::with_pets([1, 2, 3].map(|id| doc! { "_id": id, "x": id / 2 }));
    let updates = vec![doc! { "q": { "x": 1 }, "u": { "$set": { "x": 1, "y": 2 } }, "multi": true }];

    assert_eq!(server.ok(doc! { "update": "pets", "updates": updates.clone() }), doc! { "n": 2, "nModified": 2 });
    assert_eq!(server.ok(doc! { "update": "pets", "updates": updates }), doc! { "n": 2, "nModified": 0 });
}

#[test]
fn without_multi_one_document_is_updated() {
    let mut server = Server::with_pets([1, 2].map(|id| doc! { "_id": id }));

    let reply = server.ok(doc! { "update": "pets", "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] });

    assert_eq!(reply, doc! { "n": 1, "nModified": 1 });
    assert_eq!(server.ids(doc! { "x": 1 }), [1]);
}

#[test]
fn a_replacement_keeps_the_id() {
    assert_eq!(updated(doc! { "_id": 1, "x": 1 }, doc! { "y": 2 }), doc! { "_id": 1, "y": 2 });
    assert_eq!(updated(doc! { "_id": 1, "x": 1 }, doc! { "y": 2, "_id": 1.0 }), doc! { "_id": 1, "y": 2 });
    assert_eq!(error(doc! { "_id": 1 }, doc! { "_id": 2 }), 66);
    assert_eq!(error(doc! { "_id": 1 }, doc! { "$set": { "_id": 2 } }), 66);
    assert_eq!(error(doc! { "_id": 1 }, doc! { "$unset": { "_id": 1 } }), 66);
}

#[test]
fn a_replacement_is_not_for_many() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);

    let reply = server.ok(doc! { "update": "pets", "updates": [{ "q": {}, "u": { "x": 1 }, "multi": true }] });

    assert_eq!(write_errors(&reply), [(9, 0)]);
}

#[test]
fn set_and_unset_follow_dotted_paths() {
    let pet = doc! { "_id": 1, "a": { "b": 1, "c": 2 }, "d": [1, 2, 3] };

    assert_eq!(
        updated(pet.clone(), doc! { "$set": { "a.b": 9, "x.y": 1, "d.0": 9, "d.4": 5 } }),
        doc! { "_id": 1, "a": { "b": 9, "c": 2 }, "d": [9, 2, 3, null, 5], "x": { "y": 1 } }
    );
    assert_eq!(
        updated(pet.clone(), doc! { "$unset": { "a.b": "", "d.1": "", "x.y": "" } }),
        doc! { "_id": 1, "a": { "c": 2 }, "d": [1, null, 3] }
    );
    assert_eq!(error(pet.clone(), doc! { "$set": { "a.b.c": 1 } }), 28);
    assert_eq!(error(pet, doc! { "$set": { "d.x": 1 } }), 28);
}

#[test]
fn numbers_are_added_and_multiplied() {
    let pet = doc! { "_id": 1, "x": i32::MAX, "y": 2, "s": "a" };

    assert_eq!(
        updated(pet.clone(), doc! { "$inc": { "x": 1, "z": 5 }, "$mul": { "y": 1.5, "w": 3 } }),
        doc! { "_id": 1, "x": 2_147_483_648_i64, "y": 3.0, "s": "a", "w": 0, "z": 5 }
    );
    assert_eq!(error(pet.clone(), doc! { "$inc": { "s": 1 } }), 14);
    assert_eq!(error(pet.clone(), doc! { "$inc": { "x": "1" } }), 14);
    assert_eq!(error(doc! { "_id": 1, "x": i64::MAX }, doc! { "$inc": { "x": 1 } }), 2);
}

#[test]
fn the_lesser_and_the_greater_value_stay() {
    assert_eq!(
        updated(doc! { "_id": 1, "a": 5, "b": 5 }, doc! { "$min": { "a": 3, "b": 7 }, "$max": { "c": 1 } }),
        doc! { "_id": 1, "a": 3, "b": 5, "c": 1 }
    );
}

#[test]
fn arrays_grow_and_shrink() {
    let pet = doc! { "_id": 1, "a": [1, 2, 3], "d": [{ "x": 1 }, { "x": 2 }] };

    assert_eq!(
        updated(pet.clone(), doc! { "$push": { "a": 4, "n": { "$each": [1, 1] } } }),
        doc! { "_id": 1, "a": [1, 2, 3, 4], "d": [{ "x": 1 }, { "x": 2 }], "n": [1, 1] }
    );
    assert_eq!(
        updated(pet.clone(), doc! { "$addToSet": { "a": { "$each": [3.0, 5, 5] } } }).get_array("a").unwrap().len(),
        4
    );
    assert_eq!(
        updated(pet.clone(), doc! { "$pull": { "a": { "$gte": 2 }, "d": { "x": 1 } } }),
        doc! { "_id": 1, "a": [1], "d": [{ "x": 2 }] }
    );
    assert_eq!(updated(pet.clone(), doc! { "$pullAll": { "a": [1, 3] } }).get_array("a").unwrap(), &[Bson::Int32(2)]);
    assert_eq!(
        updated(pet.clone(), doc! { "$pop": { "a": -1, "d": 1 } }),
        doc! { "_id": 1, "a": [2, 3], "d": [{ "x": 1 }] }
    );
    assert_eq!(error(pet, doc! { "$push": { "_id": 1 } }), 2);
}

#[test]
fn a_field_is_renamed() {
    assert_eq!(
        updated(doc! { "_id": 1, "a": 1 }, doc! { "$rename": { "a": "b.c", "x": "y" } }),
        doc! { "_id": 1, "b": { "c": 1 } }
    );
}

#[test]
fn updates_that_make_no_sense_are_errors() {
    let pet = doc! { "_id": 1 };

    assert_eq!(error(pet.clone(), doc! { "$fuzzy": { "x": 1 } }), 9);
    assert_eq!(error(pet.clone(), doc! { "$set": 1 }), 9);
    assert_eq!(error(pet.clone(), doc! { "$set": { "x": 1 }, "x": 1 }), 9);
    assert_eq!(error(pet.clone(), doc! { "x": 1, "$set": { "x": 1 } }), 52);
    assert_eq!(error(pet.clone(), doc! { "$set": { "a": 1, "a.b": 1 } }), 40);
    assert_eq!(error(pet.clone(), doc! { "$set": { "a": 1 }, "$inc": { "a": 1 } }), 40);
    assert_eq!(error(pet.clone(), doc! { "$set": { "a..b": 1 } }), 56);
    assert_eq!(error(pet.clone(), doc! { "$set": { "a.$": 1 } }), 115);
    assert_eq!(error(pet.clone(), doc! { "$set": { "$a": 1 } }), 52);
    assert_eq!(error(pet.clone(), vec![Bson::from(1)]), 14);
    assert_eq!(error(pet, 1), 9);
}

#[test]
fn an_upsert_begins_with_the_equalities_of_its_query() {
    let mut server = Server::default();
    let query = doc! { "a": 1, "b": { "$gt": 1 }, "c.d": { "$eq": 2 }, "$and": [{ "e": 3 }] };

    let reply = server.ok(doc! { "update": "pets", "updates": [
        { "q": query, "u": { "$set": { "x": 1 }, "$setOnInsert": { "_id": 7 } }, "upsert": true },
    ] });

    assert_eq!(reply, doc! { "n": 1, "upserted": [{ "index": 0, "_id": 7 }], "nModified": 0 });
    assert_eq!(server.pets(), [doc! { "_id": 7, "a": 1, "c": { "d": 2 }, "e": 3, "x": 1 }]);
}

#[test]
fn an_upserted_replacement_takes_the_id_of_the_query() {
    let mut server = Server::default();

    let reply = server.ok(doc! { "update": "pets", "updates": [
        { "q": { "_id": 5, "a": 1 }, "u": { "b": 1 }, "upsert": true },
        { "q": { "_id": 5 }, "u": { "$setOnInsert": { "c": 1 } }, "upsert": true },
    ] });

    assert_eq!(reply, doc! { "n": 2, "upserted": [{ "index": 0, "_id": 5 }], "nModified": 0 });
    assert_eq!(server.pets(), [doc! { "_id": 5, "b": 1 }]);
}

#[test]
fn an_update_respects_unique_indexes_and_its_own_key() {
    let mut server = Server::with_pets([doc! { "_id": 1, "x": 1 }, doc! { "_id": 2, "x": 2 }]);
    server.ok(doc! { "createIndexes": "pets", "indexes": [{ "key": { "x": 1 }, "name": "x_1", "unique": true }] });

    let reply = server.ok(doc! { "update": "pets", "ordered": false, "updates": [
        { "q": { "_id": 1 }, "u": { "$set": { "x": 2 } } }, { "q": { "_id": 1 }, "u": { "$set": { "y": 2 } } },
        { "q": { "_id": 2 }, "u": { "$set": { "x": 3 } } }, { "q": { "_id": 1 }, "u": { "$set": { "x": 2 } } },
    ] });

    assert_eq!(reply.get_i32("nModified").ok(), Some(3));
    assert_eq!(write_errors(&reply), [(11000, 0)]);
}

#[test]
fn a_pipeline_updates_too() {
    let pet = || doc! { "_id": 1, "x": 1, "y": 2 };

    let stages = vec![doc! { "$set": { "z": "$x" } }, doc! { "$unset": "y" }];
    assert_eq!(piped(pet(), stages), Ok(doc! { "_id": 1, "x": 1, "z": 1 }));
    assert_eq!(piped(pet(), vec![doc! { "$replaceWith": { "a": "$$ROOT.x" } }]), Err(115));
    assert_eq!(
        piped(pet(), vec![doc! { "$replaceRoot": { "newRoot": { "a": "$y" } } }]),
        Ok(doc! { "_id": 1, "a": 2 })
    );
    let dotted = doc! { "field": { "$literal": "$a.b" }, "value": 3, "input": "$$ROOT" };
    let with_dots = doc! { "_id": 1, "x": 1, "y": 2, "$a.b": 3 };
    assert_eq!(piped(pet(), vec![doc! { "$replaceWith": { "$setField": dotted } }]), Ok(with_dots));
    assert_eq!(piped(pet(), vec![doc! { "$replaceWith": "$x" }]), Err(40228));
    assert_eq!(piped(pet(), vec![doc! { "$set": { "_id": 2 } }]), Err(66));
    assert_eq!(piped(pet(), vec![doc! { "$match": {} }]), Err(72));
}

/// The pet after an update by a pipeline, or the error's code.
fn piped(pet: Document, stages: Vec<Document>) -> Result<Document, i32> {
    let mut server = Server::with_pets([pet]);
    let reply = server.ok(doc! { "update": "pets", "updates": [{ "q": { "_id": 1 }, "u": stages, "multi": true }] });
    match write_errors(&reply).first() {
        None => Ok(server.pets().remove(0)),
        Some((code, _)) => Err(*code),
    }
}

#[test]
fn a_stage_that_does_not_exist_fails_the_whole_command() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    let good = doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 1 } } };
    let bad = doc! { "q": { "_id": 1 }, "u": [{ "$explode": true }] };

    let (code, _, _) = server.fails(doc! { "update": "pets", "updates": [good, bad] });

    assert_eq!(code, 40324);
    assert_eq!(server.pets(), [doc! { "_id": 1 }], "nothing was carried out");
}

#[test]
fn an_upsert_by_a_pipeline_begins_with_what_the_query_equals() {
    let mut server = Server::default();
    let updates = vec![doc! { "q": { "_id": 1, "x": 5 }, "u": [{ "$set": { "y": "$x" } }], "upsert": true }];

    server.ok(doc! { "update": "pets", "updates": updates });

    assert_eq!(server.pets(), [doc! { "_id": 1, "x": 5, "y": 5 }]);
}

/// The pet after an update with array filters, or the error's code.
fn filtered(pet: Document, update: Document, filters: Vec<Document>) -> Result<Document, i32> {
    let mut server = Server::with_pets([pet]);
    let updates = vec![doc! { "q": {}, "u": update, "arrayFilters": filters }];
    let reply = server.ok(doc! { "update": "pets", "updates": updates });
    match write_errors(&reply).first() {
        None => Ok(server.pets().remove(0)),
        Some((code, _)) => Err(*code),
    }
}

#[test]
fn positional_operators_change_every_element_or_those_that_a_filter_matches() {
    let pet = || doc! { "_id": 1, "y": [{ "b": 3 }, { "b": 1 }], "n": [[1, 2], [3]] };

    let all = filtered(pet(), doc! { "$inc": { "n.$[].$[]": 10 } }, vec![]).unwrap();
    assert_eq!(all.get_array("n").unwrap(), &vec![Bson::from(vec![11, 12]), Bson::from(vec![13])]);
    let some = filtered(pet(), doc! { "$set": { "y.$[i].b": 2 } }, vec![doc! { "i.b": 3 }]).unwrap();
    assert_eq!(some.get_array("y").unwrap(), &vec![doc! { "b": 2 }.into(), doc! { "b": 1 }.into()]);
    let values = filtered(pet(), doc! { "$set": { "n.$[].$[i]": 0 } }, vec![doc! { "i": { "$gte": 2 } }]).unwrap();
    assert_eq!(values.get_array("n").unwrap(), &vec![Bson::from(vec![1, 0]), Bson::from(vec![0])]);
    assert_eq!(filtered(pet(), doc! { "$set": { "y.$[i]": 2 } }, vec![doc! { "i.b": 9 }]), Ok(pet()));
}

#[test]
fn array_filters_and_paths_must_fit_each_other() {
    let pet = || doc! { "_id": 1, "y": [1], "z": 1 };
    let set = |path: &str| doc! { "$set": { path: 2 } };

    assert_eq!(filtered(pet(), set("y.$[i]"), vec![]), Err(2), "no filter");
    assert_eq!(filtered(pet(), set("y.$[]"), vec![doc! { "i": 1 }]), Err(9), "unused");
    assert_eq!(filtered(pet(), set("y.$[i]"), vec![doc! { "i": 1 }, doc! { "i": 2 }]), Err(9), "twice");
    assert_eq!(filtered(pet(), set("y.$[i]"), vec![doc! { "i": 1, "j": 2 }]), Err(9), "two names");
    assert_eq!(filtered(pet(), set("z.$[]"), vec![]), Err(2), "no array");
    assert_eq!(filtered(pet(), set("x.$[]"), vec![]), Err(2), "nothing there");
    assert_eq!(filtered(pet(), set("y.$"), vec![]), Err(115));
}

#[test]
fn a_statement_cannot_be_sorted_which_is_mongodb_8() {
    let mut server = Server::with_pets([doc! { "_id": 1 }]);
    let updates = vec![doc! { "q": {}, "u": { "$set": { "x": 1 } }, "sort": { "_id": 1 } }];

    assert_eq!(server.code(doc! { "update": "pets", "updates": updates }), 40415);
}
