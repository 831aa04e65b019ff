//! Cursors: the documents of each batch, and the rest when a cursor is killed.

use cmap_core::wire::bson::{Bson, Document, doc, rawdoc};

use super::commands::no_collection;
use crate::tools::interop::cmap::client::Client;
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::servers::Servers;

pub(super) fn get_mores(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    // A batch filled exactly leaves the cursor open (SRV-5).
    for (documents, batch_size, get_mores) in [(3, 1, 3), (5, 2, 2), (4, 2, 2), (3, 5, 0)] {
        fill(&mut client, "cursors", documents)?;
        let read = find_all(&mut client, "cursors", Some(batch_size))?;
        expect::equal(read.ids, (0..documents).collect(), "documents")?;
        expect::equal(read.get_mores, get_mores, &format!("getMores for {documents} documents by {batch_size}"))?;
    }
    Ok(())
}

pub(super) fn kill(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    fill(&mut client, "killed", 10)?;
    let first = client.run("test", &rawdoc! { "find": "killed", "batchSize": 2 })?;
    let (id, _) = batch(&first, "firstBatch")?;
    let get_more = rawdoc! { "getMore": id, "collection": "killed", "batchSize": 2 };
    let (_, documents) = batch(&client.run("test", &get_more)?, "nextBatch")?;
    expect::equal(documents, vec![doc! { "_id": 2 }, doc! { "_id": 3 }], "the second batch")?;

    let killed = client.run("test", &rawdoc! { "killCursors": "killed", "cursors": [id] })?;

    expect::equal(killed.get_array("cursorsKilled").ok(), Some(&vec![Bson::Int64(id)]), "killed cursors")?;
    expect::code(client.run("test", &get_more), 43, "the cursor is gone")
}

/// The documents of a cursor.
pub(super) struct Read {
    pub(super) ids: Vec<i32>,
    pub(super) get_mores: usize,
}

/// Reads a whole collection in its order.
pub(super) fn find_all(client: &mut Client, collection: &str, batch_size: Option<i32>) -> Result<Read, Mismatch> {
    let mut find = rawdoc! { "find": collection };
    if let Some(batch_size) = batch_size {
        find.append(cmap_core::wire::bson::cstr!("batchSize"), batch_size);
    }
    let (mut id, mut documents) = batch(&client.run("test", &find)?, "firstBatch")?;
    let mut get_mores = 0;
    while id != 0 {
        let mut get_more = rawdoc! { "getMore": id, "collection": collection };
        if let Some(batch_size) = batch_size {
            get_more.append(cmap_core::wire::bson::cstr!("batchSize"), batch_size);
        }
        let (next, more) = batch(&client.run("test", &get_more)?, "nextBatch")?;
        get_mores += 1;
        id = next;
        documents.extend(more);
    }
    let ids = documents.iter().map(|document| document.get_i32("_id").ok()).collect();
    Ok(Read { ids: expect::some(ids, "all ids")?, get_mores })
}

fn fill(client: &mut Client, collection: &str, documents: i32) -> Result<(), Mismatch> {
    client.run("test", &rawdoc! { "drop": collection }).or_else(no_collection)?;
    let documents: Vec<_> = (0..documents).map(|n| rawdoc! { "_id": n }).collect();
    client.insert(collection, &documents)?;
    Ok(())
}

/// The cursor's id, and the documents of the batch.
fn batch(reply: &Document, name: &str) -> Result<(i64, Vec<Document>), Mismatch> {
    let cursor = expect::some(reply.get_document("cursor").ok(), "cursor")?;
    let id = expect::some(cursor.get_i64("id").ok(), "the cursor's id")?;
    let batch = expect::some(cursor.get_array(name).ok(), name)?;
    Ok((id, batch.iter().filter_map(Bson::as_document).cloned().collect()))
}
