//! Callers: what they do with a client, and what must hold for the result.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cmap_core::options::{ReadMode, ReadPreference};
use cmap_core::topology::ServerSelector;
use cmap_sim::bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_sim::{Client, SimRuntime};

use super::ledger::Ledger;
use super::mark::Mark;
use super::plan::{DOCUMENTS, Operation, Patience, Work};
use crate::tools::simulate::oracle::{Broken, law};

/// What time limits may be missed by. Nothing takes any time in a simulation, but the network.
const SLACK: Duration = Duration::from_millis(1);

const IN_TIME: &str = "nobody waits beyond timeoutMS";
const OWN_REPLY: &str = "a reply belongs to its command";
const CALM: &str = "a healthy server fails no command";
const CALM_CHECK_OUT: &str = "a healthy server refuses no check-out";
const CALM_OPERATION: &str = "a healthy server fails no operation";
const CALM_CURSOR: &str = "a healthy server fails no cursor";
const EACH_ONCE: &str = "a cursor yields each document once";

/// One task, which does one operation after the other.
pub(super) struct Caller {
    pub(super) client: Client,
    pub(super) runtime: SimRuntime,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    /// timeoutMS.
    pub(super) limit: Duration,
    /// Nothing goes wrong with the servers, and time is not short.
    pub(super) is_calm: bool,
}

impl Caller {
    /// Does an operation, for as long as the caller's patience lasts. The commands that were answered.
    pub(super) async fn operate(&self, operation: Operation) -> u64 {
        self.runtime.sleep(operation.pause).await;
        let work = self.work(operation.work);
        let done = match operation.patience {
            Patience::ToTheEnd => Some(work.await),
            Patience::For(time) => self.within(time, work).await,
            Patience::Polls(polls) => within_polls(polls, work).await,
        };
        match done {
            Some(Ok(answered)) => answered,
            Some(Err(broken)) => {
                self.with_ledger(|ledger| ledger.broken = ledger.broken.take().or(Some(broken)));
                0
            }
            None => {
                self.meet(Mark::GaveUp);
                0
            }
        }
    }

    async fn work(&self, work: Work) -> Result<u64, Broken> {
        match work {
            Work::Read(number) => self.read(ServerSelector::Writable, &[number], Duration::ZERO).await,
            Work::ReadNearest(number) => self.read(nearest(), &[number], Duration::ZERO).await,
            Work::Hold(number, pause) => {
                self.read(ServerSelector::Writable, &[number, (number + 1) % DOCUMENTS], pause).await
            }
            Work::Write => self.write().await,
            Work::Retried(number) => self.retried(number).await,
            Work::Order(number) => self.order(number).await,
            Work::Cursor => self.in_time("a cursor", self.cursor()).await?,
        }
    }

    /// Reads documents by one connection.
    async fn read(&self, selector: ServerSelector, numbers: &[u64], pause: Duration) -> Result<u64, Broken> {
        let checked_out = self.in_time("a check-out", self.client.check_out_for(selector)).await?;
        let mut connection = match checked_out {
            Ok(connection) => connection,
            // The pool's event has met its mark.
            Err(error) => return self.excused(CALM_CHECK_OUT, &error),
        };
        let mut answered = 0;
        for number in numbers {
            let reply = self.in_time("a command", connection.run_command("db", find(*number))).await?;
            match reply {
                Ok(reply) => law(OWN_REPLY, is_answer(&reply, *number), || format!("find {number}: {reply:?}"))?,
                Err(error) => return self.failed(Mark::CommandFailed, CALM, &error).map(|_| answered),
            }
            answered += 1;
            self.runtime.sleep(pause).await;
        }
        Ok(answered)
    }

    async fn write(&self) -> Result<u64, Broken> {
        let mut connection = match self.in_time("a check-out", self.client.check_out()).await? {
            Ok(connection) => connection,
            Err(error) => return self.excused(CALM_CHECK_OUT, &error),
        };
        let insert = rawdoc! { "insert": "orders", "documents": [{ "text": "x".repeat(300) }, {}] };
        match self.in_time("a command", connection.run_command("db", insert)).await? {
            Ok(reply) => {
                law(OWN_REPLY, reply.get_i32("n").is_ok_and(|n| n == 2), || format!("insert: {reply:?}"))?;
                Ok(1)
            }
            Err(error) => self.failed(Mark::CommandFailed, CALM, &error),
        }
    }

    async fn retried(&self, number: u64) -> Result<u64, Broken> {
        let run = self.client.operation(("db", find(number))).on(ServerSelector::Writable).run();
        match self.in_time("an operation", run).await? {
            Ok(reply) => {
                law(OWN_REPLY, is_answer(&reply, number), || format!("find {number}: {reply:?}"))?;
                Ok(1)
            }
            Err(error) => self.failed(Mark::OperationFailed, CALM_OPERATION, &error),
        }
    }

    /// Writes a document that nobody else writes, so that what is tried again can be counted.
    async fn order(&self, number: u64) -> Result<u64, Broken> {
        let order = i64::try_from(number).unwrap_or_default();
        let insert = rawdoc! {
            "insert": "orders",
            "documents": [{ "order": order }],
            "writeConcern": { "w": "majority" },
        };
        let run = self.client.operation(("db", insert)).on(ServerSelector::Writable).run();
        match self.in_time("an operation", run).await? {
            Ok(reply) => {
                law(OWN_REPLY, reply.get_i32("n").is_ok_and(|n| n == 1), || format!("insert {number}: {reply:?}"))?;
                self.with_ledger(|ledger| {
                    ledger.acknowledged.insert(number);
                    ledger.marks.insert(Mark::OrderWritten);
                });
                Ok(1)
            }
            Err(error) => self.failed(Mark::OperationFailed, CALM_OPERATION, &error),
        }
    }

    async fn cursor(&self) -> Result<u64, Broken> {
        let find = rawdoc! { "find": "numbers", "sort": { "_id": 1 }, "batchSize": 3 };
        let opened = self.client.operation(("db", find)).on(ServerSelector::Writable).cursor().await;
        let mut cursor = match opened {
            Ok(cursor) => cursor,
            Err(error) => return self.failed(Mark::CursorFailed, CALM_CURSOR, &error),
        };
        let mut expected = 0;
        loop {
            match cursor.try_next().await {
                Ok(Some(document)) => {
                    law(EACH_ONCE, is_number(document, expected), || format!("{document:?} instead of {expected}"))?;
                    expected += 1;
                }
                Ok(None) => break,
                Err(error) => return self.failed(Mark::CursorFailed, CALM_CURSOR, &error),
            }
        }
        law(EACH_ONCE, expected == DOCUMENTS, || format!("{expected} documents"))?;
        self.meet(Mark::CursorRead);
        Ok(1)
    }

    /// Judges the time that `work` takes.
    async fn in_time<T>(&self, what: &str, work: impl Future<Output = T>) -> Result<T, Broken> {
        let began = self.runtime.elapsed();
        let done = work.await;
        let took = self.runtime.elapsed().saturating_sub(began);
        law(IN_TIME, took <= self.limit + SLACK, || format!("{what} took {took:?}, with timeoutMS {:?}", self.limit))?;
        Ok(done)
    }

    /// Something failed, which no healthy server does.
    fn failed(&self, mark: Mark, rule: &'static str, error: &dyn Display) -> Result<u64, Broken> {
        self.meet(mark);
        self.excused(rule, error)
    }

    fn excused(&self, rule: &'static str, error: &dyn Display) -> Result<u64, Broken> {
        law(rule, !self.is_calm, || error.to_string()).map(|()| 0)
    }

    async fn within<T>(&self, patience: Duration, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut timer) = (pin!(work), pin!(self.runtime.sleep(patience)));
        poll_fn(|cx| match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    }

    fn meet(&self, mark: Mark) {
        self.with_ledger(|ledger| ledger.marks.extend([mark]));
    }

    fn with_ledger(&self, change: impl FnOnce(&mut Ledger)) {
        if let Ok(mut ledger) = self.ledger.lock() {
            change(&mut ledger);
        }
    }
}

/// `work`, dropped when it is to be polled once more.
async fn within_polls<T>(polls: u64, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|cx| match left.checked_sub(1) {
        None => Poll::Ready(None),
        Some(rest) => {
            left = rest;
            work.as_mut().poll(cx).map(Some)
        }
    })
    .await
}

fn nearest() -> ServerSelector {
    ReadPreference::new(ReadMode::Nearest).into()
}

fn find(number: u64) -> RawDocumentBuf {
    rawdoc! { "find": "numbers", "filter": { "_id": i64::try_from(number).unwrap_or_default() } }
}

/// Whether a reply has this one document.
fn is_answer(reply: &RawDocument, number: u64) -> bool {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let Ok(batch) = batch else { return false };
    let documents: Vec<_> = batch.into_iter().collect();
    matches!(documents.as_slice(), [Ok(document)]
        if document.as_document().is_some_and(|document| is_number(document, number)))
}

fn is_number(document: &RawDocument, number: u64) -> bool {
    document.get_i64("_id").ok().and_then(|id| u64::try_from(id).ok()) == Some(number)
}
