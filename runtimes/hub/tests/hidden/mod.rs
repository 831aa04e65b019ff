//! Commands that name a forbidden collection behind a text that is not UTF-8. MongoDB takes them.

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};

/// The bytes, where each text `?!?!` has become one that is not UTF-8.
pub(crate) fn damaged(bytes: &[u8]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    let places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"?!?!"));
    places.for_each(|at| damaged[at..at + 4].fill(0xff));
    damaged
}

/// A `$lookup` of the collection `secret`, one of another database, and a view over `secret`: each as it is, and deeper.
pub(crate) fn commands() -> Vec<RawDocumentBuf> {
    let depths = [0, 1, 20];
    let commands = depths.into_iter().flat_map(|depth| {
        let behind = |stage: RawDocumentBuf| pipeline(stage, depth);
        let other = rawdoc! { "$lookup": { "from": { "db": "other", "coll": "orders" }, "as": "y" } };
        [
            rawdoc! { "aggregate": "orders", "pipeline": behind(rawdoc! { "$unionWith": "secret" }), "cursor": {} },
            rawdoc! { "aggregate": "orders", "pipeline": behind(other), "cursor": {} },
            rawdoc! { "create": "view", "viewOn": "orders", "pipeline": behind(rawdoc! { "$unionWith": "secret" }) },
        ]
    });
    commands.map(|command| RawDocumentBuf::from_bytes(damaged(command.as_bytes())).unwrap()).collect()
}

/// A pipeline with this stage in a `$lookup`, so many `$facet`s deep.
fn pipeline(stage: RawDocumentBuf, depth: usize) -> RawArrayBuf {
    let lookup = rawdoc! { "$lookup": { "from": "orders", "as": "?!?!", "pipeline": [stage] } };
    (0..depth).fold(one(&lookup), |inner, _| one(&rawdoc! { "$facet": { "x": inner } }))
}

fn one(stage: &RawDocument) -> RawArrayBuf {
    let mut stages = RawArrayBuf::new();
    stages.push(stage);
    stages
}
