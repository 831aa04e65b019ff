//! Random insert, find, getMore and delete, beside a model that is a list: no document is lost or comes twice, and a
//! cursor is closed exactly when it should be (SRV-5).

use std::collections::BTreeMap;

use bson::doc;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Inserts documents with these ids, of which some may be taken.
    Insert { ids: Vec<i32>, ordered: bool },
    /// Finds the documents whose id leaves this remainder when divided by three.
    Find { remainder: Option<i32>, skip: usize, limit: usize, batch_size: Option<usize>, down: bool },
    /// The next batch of an open cursor.
    GetMore { cursor: prop::sample::Index, batch_size: Option<usize> },
    /// Closes an open cursor.
    Kill { cursor: prop::sample::Index },
    /// Deletes documents by remainder: all, or the first.
    Delete { remainder: i32, one: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let batch_size = || prop::option::of(0..6_usize);
    prop_oneof![
        3 => (prop::collection::vec(0..40, 1..8), any::<bool>()).prop_map(|(ids, ordered)| Step::Insert { ids, ordered }),
        3 => (prop::option::of(0..3), 0..4_usize, 0..8_usize, batch_size(), any::<bool>())
            .prop_map(|(remainder, skip, limit, batch_size, down)| Step::Find { remainder, skip, limit, batch_size, down }),
        5 => (any::<prop::sample::Index>(), batch_size()).prop_map(|(cursor, batch_size)| Step::GetMore { cursor, batch_size }),
        1 => any::<prop::sample::Index>().prop_map(|cursor| Step::Kill { cursor }),
        1 => (0..3, any::<bool>()).prop_map(|(remainder, one)| Step::Delete { remainder, one }),
    ]
}

/// The rest of a cursor's result, and whether its end is a limit.
#[derive(Debug)]
struct Expected {
    ids: Vec<i32>,
    limit: Option<usize>,
}

impl Expected {
    /// The next batch, and whether it closes the cursor.
    fn next(&mut self, wanted: usize) -> (Vec<i32>, bool) {
        let allowed = self.limit.unwrap_or(usize::MAX);
        let count = wanted.min(allowed).min(self.ids.len());
        let batch: Vec<_> = self.ids.drain(..count).collect();
        self.limit = self.limit.map(|limit| limit - count);
        (batch, self.limit == Some(0) || count < wanted)
    }
}

#[derive(Default)]
struct Model {
    ids: Vec<i32>,
    cursors: BTreeMap<i64, Expected>,
    exists: bool,
}

impl Model {
    fn open(&self, cursor: prop::sample::Index) -> Option<i64> {
        (!self.cursors.is_empty()).then(|| *self.cursors.keys().nth(cursor.index(self.cursors.len())).unwrap())
    }
}

fn apply(server: &mut Server, model: &mut Model, step: &Step) {
    match step {
        Step::Insert { ids, ordered } => {
            let (mut inserted, mut failed) = (0, Vec::new());
            for (id, index) in ids.iter().zip(0..) {
                if model.ids.contains(id) {
                    failed.push((11000, index));
                    if *ordered {
                        break;
                    }
                } else {
                    model.ids.push(*id);
                    inserted += 1;
                }
            }
            model.exists = true;
            let documents: Vec<_> = ids.iter().map(|id| doc! { "_id": id, "three": id % 3 }).collect();
            let reply = server.ok(doc! { "insert": "pets", "documents": documents, "ordered": ordered });
            assert_eq!((reply.get_i32("n").ok(), write_errors(&reply)), (Some(inserted), failed));
        }
        Step::Find { remainder, skip, limit, batch_size, down } => {
            let mut ids: Vec<_> =
                model.ids.iter().copied().filter(|id| remainder.is_none_or(|remainder| id % 3 == remainder)).collect();
            let mut command = doc! { "find": "pets", "skip": *skip as i64, "limit": *limit as i64 };
            if *down {
                ids.sort_by_key(|id| -id);
                command.insert("sort", doc! { "_id": -1 });
            }
            if let Some(remainder) = remainder {
                command.insert("filter", doc! { "three": remainder });
            }
            if let Some(batch_size) = batch_size {
                command.insert("batchSize", *batch_size as i64);
            }
            ids.drain(..(*skip).min(ids.len()));
            let mut expected = Expected { ids, limit: (*limit > 0).then_some(*limit) };
            let (batch_of_ids, is_last) = expected.next(batch_size.unwrap_or(101));
            let reply = server.ok(command);
            assert_eq!(ids_of(&reply), batch_of_ids);
            assert_eq!(cursor_id(&reply) == 0, is_last || !model.exists);
            if cursor_id(&reply) != 0 {
                assert!(model.cursors.insert(cursor_id(&reply), expected).is_none(), "ids are not used twice");
            }
        }
        Step::GetMore { cursor, batch_size } => {
            let Some(id) = model.open(*cursor) else { return };
            let mut command = doc! { "getMore": id, "collection": "pets" };
            if let Some(batch_size) = batch_size {
                command.insert("batchSize", *batch_size as i32);
            }
            let wanted = batch_size.filter(|size| *size > 0).unwrap_or(usize::MAX);
            let (batch_of_ids, is_last) = model.cursors.get_mut(&id).unwrap().next(wanted);
            let reply = server.ok(command.clone());
            assert_eq!(ids_of(&reply), batch_of_ids);
            assert_eq!(cursor_id(&reply), if is_last { 0 } else { id });
            if is_last {
                model.cursors.remove(&id);
                assert_eq!(server.code(command), 43);
            }
        }
        Step::Kill { cursor } => {
            let Some(id) = model.open(*cursor) else { return };
            model.cursors.remove(&id);
            let reply = server.ok(doc! { "killCursors": "pets", "cursors": [id] });
            assert_eq!(reply.get_array("cursorsKilled").unwrap().len(), 1);
        }
        Step::Delete { remainder, one } => {
            let matching = |id: &i32| id % 3 == *remainder;
            let before = model.ids.len();
            if *one {
                if let Some(first) = model.ids.iter().position(matching) {
                    model.ids.remove(first);
                }
            } else {
                model.ids.retain(|id| !matching(id));
            }
            let statement = doc! { "q": { "three": remainder }, "limit": i32::from(*one) };
            let reply = server.ok(doc! { "delete": "pets", "deletes": [statement] });
            assert_eq!(reply.get_i32("n").ok(), Some((before - model.ids.len()) as i32));
        }
    }
}

fn ids_of(reply: &Document) -> Vec<i32> {
    ids(&batch(reply))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_document_is_lost_or_twice_and_cursors_close_when_they_should(steps in prop::collection::vec(step(), 1..40)) {
        let (mut server, mut model) = (Server::default(), Model::default());
        for step in &steps {
            apply(&mut server, &mut model, step);
        }
        prop_assert_eq!(server.ids(doc! {}), model.ids);
    }
}
