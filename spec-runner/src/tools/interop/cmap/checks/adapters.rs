//! The clients of our three adapters: the three lines of the README, then a document that is written and read.

use std::time::Duration;

use cmap_async_std::AsyncStd;
use cmap_core::wire::bson::{Document, RawDocumentBuf, rawdoc};
use cmap_runtime::{Client, ClientError, Error, Runtime};
use cmap_smol::Smol;
use cmap_tokio::Tokio;

use super::commands::{first_batch, number};
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::servers::Servers;

/// Nothing is in use when the client is closed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the server answered.
struct Replies {
    ping: RawDocumentBuf,
    insert: RawDocumentBuf,
    find: RawDocumentBuf,
    delete: RawDocumentBuf,
    /// Connections that were not given back until the end.
    cut_off: u32,
}

pub(super) fn tokio(servers: &Servers) -> Result<(), Mismatch> {
    on_tokio(&servers.uri("open", "", &[])?)
}

pub(super) fn tokio_scram_tls(servers: &Servers) -> Result<(), Mismatch> {
    on_tokio(&scram_tls(servers)?)
}

pub(super) fn async_std(servers: &Servers) -> Result<(), Mismatch> {
    on_async_std(&servers.uri("open", "", &[])?)
}

pub(super) fn async_std_scram_tls(servers: &Servers) -> Result<(), Mismatch> {
    on_async_std(&scram_tls(servers)?)
}

pub(super) fn smol(servers: &Servers) -> Result<(), Mismatch> {
    on_smol(&servers.uri("open", "", &[])?)
}

pub(super) fn smol_scram_tls(servers: &Servers) -> Result<(), Mismatch> {
    on_smol(&scram_tls(servers)?)
}

fn on_tokio(uri: &str) -> Result<(), Mismatch> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Mismatch::Other(format!("tokio did not start: {error}")))?;
    runtime.block_on(talk::<Tokio>(uri))?.check()
}

fn on_async_std(uri: &str) -> Result<(), Mismatch> {
    smol::block_on(talk::<AsyncStd>(uri))?.check()
}

fn on_smol(uri: &str) -> Result<(), Mismatch> {
    smol::block_on(talk::<Smol>(uri))?.check()
}

/// The server speaks only TLS, and refuses writes before a login.
fn scram_tls(servers: &Servers) -> Result<String, Mismatch> {
    let ca = servers.certificate("tls", "ca.pem")?;
    servers.uri("tls", "user:secret@", &[("tls", "true"), ("tlsCAFile", &ca), ("authMechanism", "SCRAM-SHA-256")])
}

async fn talk<R: Runtime>(uri: &str) -> Result<Replies, Error> {
    let client = Client::<R>::connect(uri).await?;
    let mut connection = client.check_out().await?;
    let ping = connection.run_command("admin", rawdoc! { "ping": 1 }).await?.into_document();

    let things = format!("things-{}", R::NAME);
    let insert = rawdoc! { "insert": things.as_str(), "documents": [{ "_id": 1, "runtime": R::NAME }] };
    let insert = connection.run_command("crud", insert).await?.into_document();
    let find = connection
        .run_command("crud", rawdoc! { "find": things.as_str(), "filter": { "_id": 1 } })
        .await?
        .into_document();
    let delete = rawdoc! { "delete": things.as_str(), "deletes": [{ "q": {}, "limit": 0 }] };
    let delete = connection.run_command("crud", delete).await?.into_document();
    drop(connection);
    let cut_off = client.close(PATIENCE).await.map_err(ClientError::from)?;
    Ok(Replies { ping, insert, find, delete, cut_off })
}

impl Replies {
    fn check(&self) -> Result<(), Mismatch> {
        expect::equal(number(&document(&self.ping)?, "ok"), Some(1), "ok")?;
        expect::equal(number(&document(&self.insert)?, "n"), Some(1), "inserted")?;
        let found = first_batch(&document(&self.find)?);
        let ids: Vec<_> = found.iter().map(|document| number(document, "_id")).collect();
        expect::equal(ids, vec![Some(1)], "found")?;
        expect::equal(number(&document(&self.delete)?, "n"), Some(1), "deleted")?;
        expect::equal(self.cut_off, 0, "connections that did not come back")
    }
}

fn document(reply: &RawDocumentBuf) -> Result<Document, Mismatch> {
    Document::try_from(reply.as_ref()).map_err(|error| Mismatch::Other(format!("not BSON: {error}")))
}
