//! Change streams over the history of one store.

mod events;
mod images;
mod resuming;
mod stages;
mod updates;

use bson::{DateTime, Timestamp, doc};

use super::*;

/// A store of a cluster, each of whose writes is an operation of its own.
struct Cluster {
    server: Server,
    operations: u32,
}

/// An open stream.
#[derive(Clone, Debug)]
struct Stream {
    database: &'static str,
    namespace: String,
    cursor: i64,
    first: Document,
}

impl Cluster {
    fn new() -> Self {
        Self::with_history_of(1 << 20)
    }

    fn with_history_of(bytes: usize) -> Self {
        let mut limits = StoreLimits::default();
        limits.history_bytes = bytes;
        let mut server = Server { store: Store::new(limits) };
        server.store.keep_history();
        Self { server, operations: 0 }
    }

    /// The time of the next operation.
    fn next_time(&self) -> Timestamp {
        Timestamp { time: 1000 + self.operations, increment: self.operations + 1 }
    }

    /// Carries out a write on the database `test`.
    fn write(&mut self, command: Document) {
        self.write_in("test", command);
    }

    fn write_in(&mut self, database: &str, command: Document) {
        self.server.store.begin_operation(self.next_time(), DateTime::from_millis(5));
        self.operations += 1;
        let body = RawDocumentBuf::try_from(&command).unwrap();
        self.server.run_in(database, &body).unwrap_or_else(|failure| panic!("{command}: {failure}"));
    }

    fn insert(&mut self, id: i32) {
        self.write(doc! { "insert": "pets", "documents": [{ "_id": id }] });
    }

    /// Opens a stream of the collection `pets`.
    fn watch(&mut self, stage: Document) -> Stream {
        self.watch_with(stage, [])
    }

    fn watch_with<const N: usize>(&mut self, stage: Document, stages: [Document; N]) -> Stream {
        self.open("test", "pets".into(), stage, &stages).unwrap()
    }

    fn watch_database(&mut self, stage: Document) -> Stream {
        self.open("test", 1.into(), stage, &[]).unwrap()
    }

    fn open(
        &mut self,
        database: &'static str,
        of: Bson,
        stage: Document,
        stages: &[Document],
    ) -> Result<Stream, CommandFailure> {
        let mut pipeline = vec![doc! { "$changeStream": stage }];
        pipeline.extend_from_slice(stages);
        let command = doc! { "aggregate": of, "pipeline": pipeline, "cursor": {} };
        let reply = self.server.run_in(database, &RawDocumentBuf::try_from(&command).unwrap())?;
        let first = Document::try_from(reply).unwrap();
        let namespace = first.get_document("cursor").unwrap().get_str("ns").unwrap().to_owned();
        Ok(Stream { database, namespace, cursor: cursor_id(&first), first })
    }

    fn get_more(&mut self, stream: &Stream) -> Result<Document, CommandFailure> {
        let (_, collection) = stream.namespace.split_once('.').unwrap();
        let command = doc! { "getMore": stream.cursor, "collection": collection };
        let reply = self.server.run_in(stream.database, &RawDocumentBuf::try_from(&command).unwrap())?;
        Ok(Document::try_from(reply).unwrap())
    }

    /// The next events.
    fn next(&mut self, stream: &Stream) -> Vec<Document> {
        batch(&self.get_more(stream).unwrap())
    }

    /// The code by which the stream cannot be opened.
    fn refusal(&mut self, stage: Document, stages: &[Document]) -> i32 {
        self.open("test", "pets".into(), stage, stages).unwrap_err().code
    }
}

fn types(events: &[Document]) -> Vec<&str> {
    events.iter().map(|event| event.get_str("operationType").unwrap()).collect()
}

fn token(event: &Document) -> Document {
    event.get_document("_id").unwrap().clone()
}

/// The token after a batch.
fn token_after(reply: &Document) -> Document {
    reply.get_document("cursor").unwrap().get_document("postBatchResumeToken").unwrap().clone()
}

fn keys(events: &[Document]) -> Vec<i32> {
    events.iter().map(|event| event.get_document("documentKey").unwrap().get_i32("_id").unwrap()).collect()
}
