//! Commands and their replies: small ones, and the largest that there may be.

use cmap_core::connection::Command;
use cmap_core::wire::bson::spec::BinarySubtype;
use cmap_core::wire::bson::{Bson, Document, RawBinaryRef, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};

use crate::tools::interop::cmap::client::ClientError;
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::servers::Servers;

/// The longest document of a user (MSG-4).
const LARGEST: usize = 16 * 1024 * 1024;

pub(super) fn ping(servers: &Servers) -> Result<(), Mismatch> {
    let reply = servers.open()?.run("admin", &rawdoc! { "ping": 1 })?;
    expect::equal(number(&reply, "ok"), Some(1), "ok")
}

pub(super) fn crud(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    client.run("crud", &rawdoc! { "dropDatabase": 1 })?;
    let mut run = |command: &RawDocument| client.run("crud", command);

    let documents = rawdoc! {
        "insert": "things",
        "documents": [{ "_id": 1, "n": 1 }, { "_id": 2, "n": 2 }, { "_id": 3, "n": 2 }],
    };
    let inserted = run(&documents)?;
    expect::equal(number(&inserted, "n"), Some(3), "inserted")?;
    expect::code(run(&rawdoc! { "insert": "things", "documents": [rawdoc! { "_id": 1 }] }), 11000, "the same _id")?;

    let found = run(&rawdoc! { "find": "things", "filter": { "n": 2 }, "sort": { "_id": -1 } })?;
    expect::equal(first_batch(&found), vec![doc! { "_id": 3, "n": 2 }, doc! { "_id": 2, "n": 2 }], "found")?;

    let update = rawdoc! { "q": { "n": 2 }, "u": { "$set": { "n": 5 } }, "multi": true };
    let updated = run(&rawdoc! { "update": "things", "updates": [update] })?;
    expect::equal((number(&updated, "n"), number(&updated, "nModified")), (Some(2), Some(2)), "matched and modified")?;
    let upsert = rawdoc! { "q": { "_id": 9 }, "u": { "$set": { "n": 9 } }, "upsert": true };
    let upserted = run(&rawdoc! { "update": "things", "updates": [upsert] })?;
    let upserted = upserted.get_array("upserted").map(Vec::len).unwrap_or_default();
    expect::equal(upserted, 1, "upserted")?;

    let increment = rawdoc! { "$inc": { "n": 10 } };
    let command = rawdoc! { "findAndModify": "things", "query": { "_id": 1 }, "update": increment, "new": true };
    let changed = run(&command)?;
    let value = changed.get_document("value").ok();
    expect::equal(value, Some(&doc! { "_id": 1, "n": 11 }), "found and modified")?;

    let pipeline = rawdoc! {
        "aggregate": "things",
        "pipeline": [{ "$match": { "n": 5 } }, { "$limit": 1 }],
        "cursor": {},
    };
    let aggregated = run(&pipeline)?;
    expect::equal(first_batch(&aggregated), vec![doc! { "_id": 2, "n": 5 }], "aggregated")?;

    let distinct = run(&rawdoc! { "distinct": "things", "key": "n" })?;
    let mut values: Vec<_> = distinct.get_array("values").into_iter().flatten().filter_map(Bson::as_i32).collect();
    values.sort_unstable();
    expect::equal(values, vec![5, 9, 11], "distinct")?;
    let counted = run(&rawdoc! { "count": "things", "query": { "n": 5 } })?;
    expect::equal(number(&counted, "n"), Some(2), "count")?;

    let deleted = run(&rawdoc! { "delete": "things", "deletes": [rawdoc! { "q": { "n": 5 }, "limit": 1 }] })?;
    expect::equal(number(&deleted, "n"), Some(1), "deleted")?;
    let listed = run(&rawdoc! { "listCollections": 1, "nameOnly": true })?;
    expect::equal(names(&first_batch(&listed)), vec!["things".to_owned()], "collections")?;
    run(&rawdoc! { "drop": "things" })?;
    expect::equal(first_batch(&run(&rawdoc! { "find": "things" })?), vec![], "documents of a dropped collection")?;

    client.insert("things", &[rawdoc! {}])?;
    let listed = client.run("admin", &rawdoc! { "listDatabases": 1, "nameOnly": true })?;
    let databases: Vec<_> = listed.get_array("databases").into_iter().flatten().filter_map(Bson::as_document).collect();
    expect::holds(names(databases).contains(&"test".to_owned()), "the database is listed")
}

pub(super) fn unknown_command(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    expect::code(client.run("admin", &rawdoc! { "noSuchCommand": 1 }), 59, "there is no such command")?;
    client.run("admin", &rawdoc! { "ping": 1 })?;
    Ok(())
}

pub(super) fn unacknowledged_write(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    client.run("test", &rawdoc! { "drop": "unacknowledged" }).or_else(no_collection)?;
    let insert = rawdoc! { "insert": "unacknowledged", "writeConcern": { "w": 0 } };
    let mut command = Command::new("test", &insert);
    command.acknowledged = false;

    client.send(&command, &[rawdoc! { "_id": 1 }])?;

    // On one connection the read follows the write.
    let found = client.run("test", &rawdoc! { "find": "unacknowledged" })?;
    expect::equal(first_batch(&found), vec![doc! { "_id": 1 }], "documents")
}

pub(super) fn large_document(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    client.run("test", &rawdoc! { "drop": "large" }).or_else(no_collection)?;
    let largest = document_of(LARGEST);

    client.insert("large", std::slice::from_ref(&largest))?;

    let found = client.run("test", &rawdoc! { "find": "large" })?;
    let back = expect::some(first_batch(&found).pop(), "the document")?;
    let back = RawDocumentBuf::try_from(&back).map_err(ClientError::from)?;
    expect::holds(back.as_bytes() == largest.as_bytes(), "the same bytes came back")?;
    client.run("test", &rawdoc! { "drop": "large" })?;
    Ok(())
}

pub(super) fn too_large_document(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    let inserted = client.insert("large", &[document_of(LARGEST + 1)]);
    let error = expect::error(inserted, "the document is a byte too long")?;
    expect::holds(matches!(error, ClientError::Command(_)), "the client does not even send it")?;
    // The server refuses it, too, from a client that does not check.
    let body = rawdoc! { "insert": "large", "documents": [document_of(LARGEST + 1)] };
    expect::code(client.run("test", &body), 10334, "the document is a byte too long")
}

pub(super) fn large_batch(servers: &Servers) -> Result<(), Mismatch> {
    const DOCUMENTS: i32 = 100_000;
    let mut client = servers.open()?;
    client.run("test", &rawdoc! { "drop": "batch" }).or_else(no_collection)?;
    let documents: Vec<_> = (0..DOCUMENTS).map(|n| rawdoc! { "_id": n }).collect();

    let batch = client.description().limits.max_write_batch as usize;
    let mut inserted = 0;
    for documents in documents.chunks(batch) {
        inserted += number(&client.insert("batch", documents)?, "n").unwrap_or_default();
    }

    expect::equal(inserted, DOCUMENTS.into(), "inserted")?;
    let ids = super::cursors::find_all(&mut client, "batch", None)?.ids;
    expect::holds(ids.into_iter().eq(0..DOCUMENTS), "all came back in order")?;
    client.run("test", &rawdoc! { "drop": "batch" })?;
    Ok(())
}

/// A whole number of any type.
pub(super) fn number(reply: &Document, name: &str) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "servers write small numbers as doubles, too")]
    let of_double = |double: f64| double as i64;
    let value = reply.get(name)?;
    value.as_i64().or_else(|| value.as_i32().map(i64::from)).or_else(|| value.as_f64().map(of_double))
}

/// The documents in a command's answer.
pub(super) fn first_batch(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    batch.into_iter().flatten().filter_map(Bson::as_document).cloned().collect()
}

/// Servers before MongoDB 7.0 refuse to drop a missing collection; not all of them give the code, 26.
pub(super) fn no_collection(error: ClientError) -> Result<Document, ClientError> {
    let is_missing = matches!(&error, ClientError::Server(server) if server.message == "ns not found");
    if is_missing { Ok(Document::new()) } else { Err(error) }
}

fn names<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Vec<String> {
    documents.into_iter().filter_map(|document| document.get_str("name").ok().map(ToOwned::to_owned)).collect()
}

/// A document of this many bytes.
fn document_of(length: usize) -> RawDocumentBuf {
    let document = |data: &[u8]| {
        let mut document = rawdoc! { "_id": 1 };
        document.append(cstr!("data"), RawBinaryRef { subtype: BinarySubtype::Generic, bytes: data });
        document
    };
    let rest = length - document(&[]).as_bytes().len();
    let data: Vec<u8> = (0..251).cycle().take(rest).collect();
    document(&data)
}
