//! Compressors, proven by the server's counts.

use std::collections::BTreeMap;

use cmap_core::wire::bson::{Document, doc, rawdoc};

use crate::tools::interop::cmap::client::Client;
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::servers::Servers;

pub(super) fn snappy(servers: &Servers) -> Result<(), Mismatch> {
    compresses(servers, "snappy")
}

pub(super) fn zlib(servers: &Servers) -> Result<(), Mismatch> {
    compresses(servers, "zlib")
}

pub(super) fn zstd(servers: &Servers) -> Result<(), Mismatch> {
    compresses(servers, "zstd")
}

fn compresses(servers: &Servers, compressor: &str) -> Result<(), Mismatch> {
    let mut observer = servers.open()?;
    let mut client = servers.connect("open", "", &[("compressors", compressor)])??;
    let before = counts(&mut observer)?;
    let collection = format!("compressed-{compressor}");
    client.run("test", &rawdoc! { "drop": &*collection })?;
    let text = "a".repeat(100_000);
    client.insert(&collection, &[rawdoc! { "_id": 1, "text": &*text }])?;
    let found = client.run("test", &rawdoc! { "find": &*collection })?;
    let batch = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).ok();
    let expected = vec![doc! { "_id": 1, "text": text }.into()];
    expect::holds(batch == Some(&expected), "the document came back")?;
    let after = counts(&mut observer)?;
    expect::holds(after.contains_key(compressor), "the server counts for this compressor")?;
    for (name, (came, left)) in after {
        let (came_before, left_before) = before.get(&name).copied().unwrap_or_default();
        expect::equal(came > came_before && left > left_before, name == compressor, &format!("use of {name}"))?;
    }
    Ok(())
}

/// For each compressor, how many bytes came and left compressed.
fn counts(client: &mut Client) -> Result<BTreeMap<String, (i64, i64)>, Mismatch> {
    let status = client.run("admin", &rawdoc! { "serverStatus": 1 })?;
    let compression = status.get_document("network").and_then(|network| network.get_document("compression")).ok();
    let compression = expect::some(compression, "network.compression")?;
    let bytes = |of: &Document, side, direction| of.get_document(side).ok()?.get_i64(direction).ok();
    let count = |name: &String| {
        let of = compression.get_document(name).ok()?;
        Some((name.clone(), (bytes(of, "decompressor", "bytesIn")?, bytes(of, "compressor", "bytesOut")?)))
    };
    expect::some(compression.keys().map(count).collect(), "all counts")
}
