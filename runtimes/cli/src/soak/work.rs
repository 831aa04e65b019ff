//! What the tasks do: operations of all sorts, one after the other, until they are told to stop.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use cmap_core::pool::Purpose;
use cmap_core::random::Random;
use cmap_core::wire::bson::{RawArrayBuf, RawBsonRef, RawDocument, rawdoc};
use cmap_runtime::{Client, Connection, Runtime};

use super::failure::Failure;
use super::outage::Outages;
use super::tally::{End, Operation, Tally};

/// The database that is written to.
const DATABASE: &str = "soak";

/// Longest rest of a task after each operation. Without rests the machine would do nothing else.
const MOST_REST: Duration = Duration::from_millis(100);

/// Longest rest of a task between the batches of its cursor.
const MOST_BETWEEN_BATCHES: Duration = Duration::from_millis(10);

/// The most time that an operation with little time has to get a connection, in milliseconds.
const MOST_WAIT_MS: u64 = 5;

/// The most await points that an operation passes before it is dropped.
const MOST_POINTS: u64 = 3;

/// Documents of a cursor, and how many come at a time.
const DOCUMENTS: i64 = 5;
const BATCH: i32 = 2;

/// What all tasks note, and how they are told to stop.
#[derive(Debug, Default)]
pub(super) struct Logbook {
    is_over: AtomicBool,
    tally: Mutex<Tally>,
    outages: Mutex<Outages>,
}

/// One task.
pub(super) struct Worker<R: Runtime> {
    pub(super) client: Client<R>,
    pub(super) runtime: R,
    pub(super) random: Random,
    /// Tells it from the others.
    pub(super) number: u32,
    pub(super) logbook: Arc<Logbook>,
    /// Counts the task's end when it is dropped.
    pub(super) over: Sender<()>,
}

/// The documents of one operation.
struct Documents {
    collection: String,
    first_id: i64,
}

impl Logbook {
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the tasks to stop after what they are doing.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl<R: Runtime> Worker<R> {
    /// Works until it is told to stop.
    pub(super) async fn run(mut self) {
        let mut count = 0;
        while !self.logbook.is_over.load(Ordering::Relaxed) {
            let operation = self.choose();
            count += 1;
            let end = self.carry_out(operation, count).await;
            self.logbook.tally().note(operation, end.as_ref().copied());
            self.rest(MOST_REST).await;
        }
        // The receiver is gone if the session has stopped waiting.
        let _ = self.over.send(());
    }

    fn choose(&mut self) -> Operation {
        match self.random.up_to(99) {
            0..40 => Operation::Ping,
            40..60 => Operation::Write,
            60..75 => Operation::Timed,
            75..90 => Operation::Dropped,
            _ => Operation::Pinned,
        }
    }

    async fn carry_out(&mut self, operation: Operation, count: u32) -> Result<End, Failure> {
        if operation != Operation::Dropped {
            return self.complete(operation, count).await.map(|()| End::Succeeded);
        }
        let points = self.random.up_to(MOST_POINTS - 1);
        match drop_after(points, self.complete(operation, count)).await {
            Some(result) => result.map(|()| End::Succeeded),
            None => Ok(End::Dropped),
        }
    }

    async fn complete(&mut self, operation: Operation, count: u32) -> Result<(), Failure> {
        let mut connection = match operation {
            Operation::Timed => {
                let limit = Duration::from_millis(1 + self.random.up_to(MOST_WAIT_MS - 1));
                self.client.check_out_within(Some(limit)).await?
            }
            Operation::Ping | Operation::Write | Operation::Dropped | Operation::Pinned => {
                self.client.check_out().await?
            }
        };
        let outages = self.logbook.outages().number();
        let documents = Documents::new(R::NAME, self.number, count);
        match operation {
            Operation::Ping | Operation::Timed | Operation::Dropped => {
                connection.run_command("admin", rawdoc! { "ping": 1 }).await?;
            }
            Operation::Write => write(&mut connection, &documents).await?,
            Operation::Pinned => self.read_pinned(connection, &documents).await?,
        }
        self.logbook.outages().succeeded(outages, self.runtime.now());
        Ok(())
    }

    /// Reads all documents through a cursor, in no hurry.
    async fn read_pinned(&mut self, connection: Connection<R>, documents: &Documents) -> Result<(), Failure> {
        let mut connection = connection.pin(Purpose::Cursor);
        documents.insert(&mut connection, DOCUMENTS).await?;
        let collection = documents.collection.as_str();
        let last = documents.first_id + DOCUMENTS;
        let filter = rawdoc! { "_id": { "$gte": documents.first_id, "$lt": last } };
        let find = rawdoc! { "find": collection, "filter": filter, "batchSize": BATCH };
        let mut reply = connection.run_command(DATABASE, find).await?;
        let mut ids = ids(&reply, "firstBatch")?;
        loop {
            let cursor = cursor(&reply)?.get_i64("id").map_err(wrong)?;
            if cursor == 0 {
                break;
            }
            self.rest(MOST_BETWEEN_BATCHES).await;
            let more = rawdoc! { "getMore": cursor, "collection": collection, "batchSize": BATCH };
            reply = connection.run_command(DATABASE, more).await?;
            ids.append(&mut self::ids(&reply, "nextBatch")?);
        }
        if !ids.into_iter().eq(documents.first_id..last) {
            return Err(Failure::WrongReply);
        }
        documents.delete(&mut connection.unpin(), DOCUMENTS).await
    }

    async fn rest(&mut self, most: Duration) {
        let nanoseconds = self.random.up_to(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
        let until: Instant = self.runtime.now() + Duration::from_nanos(nanoseconds);
        self.runtime.sleep_until(until).await;
    }
}

async fn write<R: Runtime>(connection: &mut Connection<R>, documents: &Documents) -> Result<(), Failure> {
    documents.insert(connection, 1).await?;
    let find = rawdoc! { "find": documents.collection.as_str(), "filter": { "_id": documents.first_id } };
    let found = ids(&connection.run_command(DATABASE, find).await?, "firstBatch")?;
    if found != [documents.first_id] {
        return Err(Failure::WrongReply);
    }
    documents.delete(connection, 1).await
}

impl Documents {
    /// Those of one operation of one task. No other operation's have their ids, no other process has their collection.
    fn new(runtime: &str, task: u32, operation: u32) -> Self {
        let first_id = (i64::from(task) << 40) + i64::from(operation) * DOCUMENTS;
        Self { collection: format!("{runtime}-{}", std::process::id()), first_id }
    }

    async fn insert<R: Runtime>(&self, connection: &mut Connection<R>, count: i64) -> Result<(), Failure> {
        let mut documents = RawArrayBuf::new();
        (self.first_id..self.first_id + count).for_each(|id| documents.push(rawdoc! { "_id": id }));
        let command = rawdoc! { "insert": self.collection.as_str(), "documents": documents };
        changed(&connection.run_command(DATABASE, command).await?, count)
    }

    async fn delete<R: Runtime>(&self, connection: &mut Connection<R>, count: i64) -> Result<(), Failure> {
        let filter = rawdoc! { "_id": { "$gte": self.first_id, "$lt": self.first_id + count } };
        let delete = rawdoc! { "q": filter, "limit": 0 };
        let command = rawdoc! { "delete": self.collection.as_str(), "deletes": [delete] };
        changed(&connection.run_command(DATABASE, command).await?, count)
    }
}

/// Polls `future` until it has waited at this many await points, and then once more; drops it there.
async fn drop_after<T>(points: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = points;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

fn changed(reply: &RawDocument, count: i64) -> Result<(), Failure> {
    let changed = reply.get_i32("n").map_err(wrong)?;
    if i64::from(changed) == count { Ok(()) } else { Err(Failure::WrongReply) }
}

fn cursor(reply: &RawDocument) -> Result<&RawDocument, Failure> {
    reply.get_document("cursor").map_err(wrong)
}

/// The ids of a batch's documents.
fn ids(reply: &RawDocument, batch: &str) -> Result<Vec<i64>, Failure> {
    let batch = cursor(reply)?.get_array(batch).map_err(wrong)?;
    let id = |document: &RawDocument| document.get_i64("_id").map_err(wrong);
    let document = |value: RawBsonRef<'_>| value.as_document().map_or(Err(Failure::WrongReply), id);
    batch.into_iter().map(|value| value.map_or(Err(Failure::WrongReply), document)).collect()
}

fn wrong<E>(_: E) -> Failure {
    Failure::WrongReply
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_future_is_dropped_at_the_await_point_that_was_asked_for() {
        let waits_for_ever = || std::future::pending::<()>();
        let mut cx = Context::from_waker(Waker::noop());
        let mut dropped = pin!(drop_after(2, waits_for_ever()));

        assert!(dropped.as_mut().poll(&mut cx).is_pending());
        assert!(dropped.as_mut().poll(&mut cx).is_pending());
        assert_eq!(dropped.as_mut().poll(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn a_future_that_never_waits_is_not_dropped() {
        let mut cx = Context::from_waker(Waker::noop());

        assert_eq!(pin!(drop_after(0, ready(7))).poll(&mut cx), Poll::Ready(Some(7)));
    }
}
