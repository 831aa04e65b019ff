//! A replica set of several members, by the client of an adapter: it is told of one member, or of a name in DNS, and has to
//! find the others.

use std::future::Future;
use std::time::Duration;

use cmap_core::options::{ClientOptions, ReadMode, ReadPreference, TagSet};
use cmap_core::topology::ServerSelector;
use cmap_core::wire::bson::{Document, RawDocumentBuf, doc, rawdoc};
use cmap_runtime::Error;
use cmap_tokio::{Client, Cursor};

use super::commands::{first_batch, number};
use super::topologies::numbered;
use crate::tools::interop::cmap::client::ClientError;
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::servers::Servers;

/// The tags of the members.
const NUMBERS: [&str; 3] = ["0", "1", "2"];

/// How often a write is sent, which the client does not repeat by itself.
const ATTEMPTS: u32 = 50;

const PAUSE: Duration = Duration::from_millis(100);

pub(super) fn secondary_reads(servers: &Servers) -> Result<(), Mismatch> {
    let uri = servers.uri("members", "", &[("replicaSet", "rs0"), ("timeoutMS", "10000")])?;
    run(async {
        let client = connect(&uri).await?;
        fresh(&client, "secondaryReads").await?;
        insert(&client, "secondaryReads", 1, rawdoc! { "w": 3 }).await?;
        let primary = tag(&hello(&client, ServerSelector::Writable).await?);
        for number in NUMBERS.into_iter().filter(|number| *number != primary) {
            let tags = TagSet::from([("number".to_owned(), number.to_owned())]);
            let preference = ReadPreference::new(ReadMode::Secondary).with_tag_sets(vec![tags]);
            let secondary = ServerSelector::from(preference.map_err(|error| Mismatch::Other(error.to_string()))?);
            let found = hello(&client, secondary.clone()).await?;
            let is_secondary = found.get_bool("secondary").is_ok_and(|is| is);
            expect::equal((is_secondary, &*tag(&found)), (true, number), "the member with the tag")?;
            expect::equal(ids(&client, "secondaryReads", secondary).await?, vec![1], "documents of the secondary")?;
        }
        Ok(())
    })
}

pub(super) fn step_down(servers: &Servers) -> Result<(), Mismatch> {
    let uri = servers.uri("members", "", &[("replicaSet", "rs0"), ("timeoutMS", "10000")])?;
    run(async {
        let client = connect(&uri).await?;
        fresh(&client, "stepDown").await?;
        insert(&client, "stepDown", 1, rawdoc! { "w": 3 }).await?;
        let before = me(&client).await?;
        command(&client, ServerSelector::Writable, "admin", rawdoc! { "replSetStepDown": 2 }).await?;
        insert(&client, "stepDown", 2, rawdoc! { "w": 3 }).await?;
        expect::holds(me(&client).await? != before, "another member is the primary")?;
        expect::equal(ids(&client, "stepDown", ServerSelector::Writable).await?, vec![1, 2], "documents")
    })
}

pub(super) fn kill(servers: &Servers) -> Result<(), Mismatch> {
    let uri = servers.uri("members", "", &[("replicaSet", "rs0"), ("timeoutMS", "10000")])?;
    run(async {
        let client = connect(&uri).await?;
        fresh(&client, "kill").await?;
        insert(&client, "kill", 1, rawdoc! { "w": 3 }).await?;
        let before = me(&client).await?;
        let order = |what: &str| rawdoc! { "testDeployment": what, "member": &*before };
        command(&client, ServerSelector::Writable, "admin", order("kill")).await?;
        insert(&client, "kill", 2, rawdoc! { "w": "majority" }).await?;
        expect::holds(me(&client).await? != before, "another member is the primary")?;

        command(&client, ServerSelector::Writable, "admin", order("restart")).await?;
        // All members have it once the one that was killed has caught up.
        insert(&client, "kill", 3, rawdoc! { "w": 3 }).await?;
        expect::equal(ids(&client, "kill", ServerSelector::Writable).await?, vec![1, 2, 3], "documents")
    })
}

pub(super) fn change_stream(servers: &Servers) -> Result<(), Mismatch> {
    let uri = servers.uri("members", "", &[("replicaSet", "rs0"), ("timeoutMS", "10000")])?;
    run(async {
        let client = connect(&uri).await?;
        fresh(&client, "changes").await?;
        let watch = rawdoc! { "aggregate": "changes", "pipeline": [{ "$changeStream": {} }] };
        let mut stream = client.operation(("test", watch)).watch().await.map_err(Error::from)?;
        insert(&client, "changes", 1, rawdoc! { "w": 3 }).await?;
        expect::equal(next_id(&mut stream).await?, Some(1), "change")?;

        let before = me(&client).await?;
        let order = |what: &str| rawdoc! { "testDeployment": what, "member": &*before };
        command(&client, ServerSelector::Writable, "admin", order("kill")).await?;
        let more = client.operation(("test", doc! { "insert": "changes", "writeConcern": { "w": "majority" } }));
        let more = more.sequence("documents", (2..5).map(|id| doc! { "_id": id })).run().await.map_err(Error::from)?;
        expect::equal(more.inserted, 3, "inserted")?;
        for id in 2..5 {
            expect::equal(next_id(&mut stream).await?, Some(id), "change after the failover")?;
        }
        command(&client, ServerSelector::Writable, "admin", order("restart")).await.map(drop)
    })
}

/// The `_id` of the document that the next change is about.
async fn next_id(stream: &mut Cursor) -> Result<Option<i32>, Mismatch> {
    let change = stream.try_next().await.map_err(Error::from)?;
    let key = change.and_then(|change| change.get_document("documentKey").ok());
    Ok(key.and_then(|key| key.get_i32("_id").ok()))
}

pub(super) fn srv(servers: &Servers) -> Result<(), Mismatch> {
    let (uri, dns) = servers.srv("members")?;
    run(async {
        let (options, _) = ClientOptions::parse(&uri).map_err(ClientError::from)?;
        let client = Client::builder(options).name_servers([dns]).build().await.map_err(Error::from)?;
        fresh(&client, "srv").await?;
        insert(&client, "srv", 1, rawdoc! { "w": 3 }).await?;
        expect::equal(ids(&client, "srv", ServerSelector::Writable).await?, vec![1], "documents")?;
        expect::equal(client.options().replica_set.as_deref(), Some("rs0"), "the option in the TXT record")?;
        expect::equal(client.description().servers.len(), NUMBERS.len(), "members")
    })
}

fn run(check: impl Future<Output = Result<(), Mismatch>>) -> Result<(), Mismatch> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Mismatch::Other(format!("tokio did not start: {error}")))?.block_on(check)
}

async fn connect(uri: &str) -> Result<Client, Mismatch> {
    Ok(Client::connect(uri).await.map_err(Error::from)?)
}

async fn command(
    client: &Client,
    selector: ServerSelector,
    database: &str,
    command: RawDocumentBuf,
) -> Result<Document, Mismatch> {
    let mut connection = client.check_out_for(selector).await.map_err(Error::from)?;
    let reply = connection.run_command(database, command).await.map_err(Error::from)?;
    Document::try_from(&*reply).map_err(|error| Mismatch::Other(format!("not BSON: {error}")))
}

/// Inserts a document, once, however often the primary changes meanwhile.
async fn insert(client: &Client, collection: &str, id: i32, write_concern: RawDocumentBuf) -> Result<(), Mismatch> {
    let insert = rawdoc! { "insert": collection, "documents": [{ "_id": id }], "writeConcern": write_concern };
    let insert = numbered(insert, id.into())?;
    let mut attempt = 1;
    loop {
        match command(client, ServerSelector::Writable, "test", insert.clone()).await {
            Ok(reply) => return expect::equal(number(&reply, "n"), Some(1), "inserted"),
            Err(mismatch) if attempt == ATTEMPTS => return Err(mismatch),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        attempt += 1;
    }
}

/// Empties a collection.
async fn fresh(client: &Client, collection: &str) -> Result<(), Mismatch> {
    let delete = rawdoc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }], "writeConcern": { "w": 3 } };
    command(client, ServerSelector::Writable, "test", delete).await.map(drop)
}

async fn ids(client: &Client, collection: &str, selector: ServerSelector) -> Result<Vec<i64>, Mismatch> {
    let found = command(client, selector, "test", rawdoc! { "find": collection }).await?;
    Ok(first_batch(&found).iter().filter_map(|document| number(document, "_id")).collect())
}

async fn hello(client: &Client, selector: ServerSelector) -> Result<Document, Mismatch> {
    command(client, selector, "admin", rawdoc! { "hello": 1 }).await
}

async fn me(client: &Client) -> Result<String, Mismatch> {
    let hello = hello(client, ServerSelector::Writable).await?;
    Ok(expect::some(hello.get_str("me").ok(), "the primary's address")?.to_owned())
}

/// The number that a member's tags say.
fn tag(hello: &Document) -> String {
    let none = doc! {};
    hello.get_document("tags").unwrap_or(&none).get_str("number").unwrap_or_default().to_owned()
}
