//! What the replies say that everybody reads: `reply.parse::<Written>()?.n`.

use bson::Bson;
use cmap_core::batch::Upserted;
use serde::{Deserialize, Deserializer};

/// What insert, update and delete say. `n` counts an upserted document, too.
///
/// ```
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::{Client, Error, Runtime, Written};
///
/// async fn finish<R: Runtime>(client: &Client<R>, item: i32) -> Result<bool, Error> {
///     let update = doc! { "q": { "_id": item }, "u": { "$set": { "done": true } } };
///     let reply = client.run(("todo", doc! { "update": "items", "updates": [update] })).await?;
///     Ok(reply.parse::<Written>()?.n == 1)
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Written {
    /// The documents that were inserted or deleted, or that an update matched.
    pub n: u64,
    /// The documents that an update changed; 0 for other commands.
    #[serde(default, rename = "nModified")]
    pub modified: u64,
    /// The documents that updates inserted since they matched none.
    #[serde(default, deserialize_with = "upserted")]
    pub upserted: Vec<Upserted>,
}

fn upserted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Upserted>, D::Error> {
    #[derive(Deserialize)]
    struct Listed {
        index: u32,
        #[serde(rename = "_id")]
        id: Bson,
    }

    let listed = Vec::<Listed>::deserialize(deserializer)?;
    Ok(listed.into_iter().map(|Listed { index, id }| Upserted::new(index, id)).collect())
}

/// What `count` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Counted {
    /// How many documents there are.
    pub n: u64,
}

/// What `findAndModify` says about a document that reads as `T`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct FoundAndModified<T> {
    /// The document before the change, or with `new: true` after it; `None` if there was none.
    #[serde(default = "none")]
    pub value: Option<T>,
}

/// Without asking that `T` has a default.
fn none<T>() -> Option<T> {
    None
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    fn parse<T: for<'a> Deserialize<'a>>(reply: &RawDocumentBuf) -> T {
        bson::deserialize_from_slice(reply.as_bytes()).unwrap()
    }

    #[test]
    fn a_reply_of_any_write_is_read() {
        let inserted: Written = parse(&rawdoc! { "n": 3, "ok": 1.0 });
        let updated: Written =
            parse(&rawdoc! { "n": 2, "nModified": 1, "upserted": [{ "index": 1, "_id": "new" }], "ok": 1.0 });

        assert_eq!((inserted.n, inserted.modified, inserted.upserted.len()), (3, 0, 0));
        assert_eq!((updated.n, updated.modified), (2, 1));
        assert_eq!(updated.upserted, [Upserted::new(1, "new".into())]);
    }

    #[test]
    fn a_document_that_was_not_found_is_none() {
        let found: FoundAndModified<RawDocumentBuf> = parse(&rawdoc! { "value": { "last": 7 }, "ok": 1.0 });
        let missing: FoundAndModified<RawDocumentBuf> = parse(&rawdoc! { "value": null, "ok": 1.0 });
        let counted: Counted = parse(&rawdoc! { "n": 12, "ok": 1.0 });

        assert_eq!(found.value, Some(rawdoc! { "last": 7 }));
        assert_eq!((missing.value, counted.n), (None, 12));
    }
}
