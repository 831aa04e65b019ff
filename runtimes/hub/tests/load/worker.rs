//! A client that knows what each of its replies has to say: it has documents to itself, and each of them carries its number and how often
//! it was counted up. So a reply to somebody else, a write that is lost, and one that is carried out twice all show.

use std::cmp::max;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cmap_core::random::Random;
use cmap_core::wire::CommandReply;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use cmap_tokio::{Client, CommandErrorKind, Connection};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Documents of a client.
const DOCUMENTS: usize = 10;

/// Documents of a batch.
const BATCH: i32 = 4;

/// How many clients have their documents in the same collection: the test server looks at all of them for a cursor, and at all collections
/// for a transaction.
const CLIENTS: i64 = 10;

/// For how long a client repeats what it may repeat.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a transaction of a client that has vanished may be in the way: five seconds, and as long as an election takes. Its
/// server would end it after a minute.
const IN_THE_WAY: Duration = Duration::from_secs(40);

/// How a worker ends a turn that it has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is complete.
    Whole,
    /// The client vanishes in the middle.
    Abandoned,
}

/// A client on a connection of its own.
pub(crate) struct Worker {
    connection: Connection,
    number: i64,
    random: Random,
    pace: Duration,
    next: Instant,
    session: [u8; 16],
    transaction: i64,
    counts: [i64; DOCUMENTS],
    /// What its last transaction has written to.
    written: Vec<usize>,
    /// How often in a row the hub has refused it because too many wait.
    refusals: u32,
    pub(crate) tally: Tally,
    /// The command that it has sent last.
    pub(crate) doing: RawDocumentBuf,
}

/// What a worker has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) commands: u64,
    pub(crate) cursors: u64,
    pub(crate) transactions: u64,
    /// Commands that the hub has refused because too many wait.
    pub(crate) refused: u64,
    pub(crate) repeated: BTreeMap<i32, u64>,
    /// What was not as it has to be.
    pub(crate) wrong: Vec<String>,
    /// The command that took longest, and for how long.
    pub(crate) slowest: (Duration, String),
    /// For how long its process has worked.
    pub(crate) work: Duration,
}

/// A command of a transaction has failed, and the whole can be repeated.
struct Again;

impl Worker {
    /// A client that has nothing yet.
    pub(crate) async fn new(client: &Client, number: i64, seed: u64, pace: Duration) -> Self {
        let mut worker = Self::on(client.check_out().await.unwrap(), number, [0; DOCUMENTS], seed, pace);
        let mut documents = RawArrayBuf::new();
        (0..DOCUMENTS).for_each(|id| documents.push(rawdoc! { "_id": worker.id(id), "by": number, "n": 0_i64 }));
        worker.number_write(rawdoc! { "insert": worker.collection(), "documents": documents }).await;
        worker
    }

    /// The client vanishes while a command runs, and is there again, on another connection and in another session. It begins a
    /// transaction where it has left one.
    pub(crate) async fn vanish_and_return(self, client: &Client) -> Self {
        let Self { mut connection, number, mut random, pace, counts, written, tally, .. } = self;
        let find = rawdoc! { "find": collection(number) };
        let cut_off = tokio::time::timeout(Duration::ZERO, connection.run_command("load", find)).await.is_err();
        assert!(cut_off, "the reply to what has just been sent cannot be there");
        drop(connection);
        let connection = client.check_out().await.unwrap();
        let mut worker = Self { tally, ..Self::on(connection, number, counts, random.next_u64(), pace) };
        if let (Some(&first), Some(&second)) = (written.first(), written.last()) {
            let begun = Instant::now();
            worker.transact_at(first, second, true, false).await;
            if begun.elapsed() > IN_THE_WAY {
                worker.wrong(format!("a transaction that it has left was in its way for {:?}", begun.elapsed()));
            }
        }
        worker
    }

    fn on(connection: Connection, number: i64, counts: [i64; DOCUMENTS], seed: u64, pace: Duration) -> Self {
        let mut random = Random::new(seed);
        let mut session = [0; 16];
        session[..8].copy_from_slice(&number.to_le_bytes());
        session[8..].copy_from_slice(&random.next_u64().to_le_bytes());
        let (next, tally) = (Instant::now(), Tally::default());
        Self {
            connection,
            number,
            random,
            pace,
            next,
            session,
            transaction: 0,
            counts,
            written: Vec::new(),
            refusals: 0,
            tally,
            doing: RawDocumentBuf::new(),
        }
    }

    /// From now on it waits for so long between two commands.
    pub(crate) fn set_pace(&mut self, pace: Duration) {
        let part = f64::from(u32::try_from(self.random.up_to(1000)).unwrap()) / 1000.0;
        (self.pace, self.next) = (pace, Instant::now() + pace.mul_f64(part));
    }

    /// One of the things that it does. `may_vanish`: it may leave in the middle.
    pub(crate) async fn turn(&mut self, may_vanish: bool) -> Turn {
        match self.random.up_to(99) {
            0..50 => self.read().await,
            50..75 => self.count_up().await,
            75..88 => return self.read_by_cursor(may_vanish).await,
            _ => return self.transact(may_vanish).await,
        }
        Turn::Whole
    }

    async fn read(&mut self) {
        let id = self.any();
        let find = rawdoc! { "find": self.collection(), "filter": { "_id": self.id(id) } };
        let reply = self.ask_until_answered(find).await;
        self.check_batch(&reply, "firstBatch", id..id + 1);
    }

    async fn count_up(&mut self) {
        let id = self.any();
        let reply = self.number_write(self.increment(id)).await;
        self.counts[id] += 1;
        self.check_incremented(&reply, id);
    }

    async fn read_by_cursor(&mut self, may_vanish: bool) -> Turn {
        self.tally.cursors += 1;
        let begun = Instant::now();
        'again: loop {
            // As drivers do: a cursor without a session ends with the connection that it was opened on.
            let lsid = self.lsid();
            let find = rawdoc! {
                "find": self.collection(), "filter": { "by": self.number }, "sort": { "_id": 1 }, "batchSize": BATCH,
                "lsid": lsid.clone(),
            };
            let mut reply = self.ask_until_answered(find).await;
            let mut seen = self.check_batch(&reply, "firstBatch", 0..4);
            while let Some(id) = open_cursor(&reply) {
                if may_vanish && self.random.up_to(9) == 0 {
                    return Turn::Abandoned;
                }
                let more = rawdoc! {
                    "getMore": id, "collection": self.collection(), "batchSize": BATCH, "lsid": lsid.clone(),
                };
                reply = self.ask(more).await;
                if let Some(code) = code(&reply) {
                    // The cursor was at a server that has gone, or too many commands wait. A cursor that is still there is not left.
                    self.may_repeat(code, begun, &reply);
                    self.rest(&reply).await;
                    let mut ids = RawArrayBuf::new();
                    ids.push(id);
                    self.ask_until_answered(
                        rawdoc! { "killCursors": self.collection(), "cursors": ids, "lsid": lsid.clone() },
                    )
                    .await;
                    continue 'again;
                }
                seen += self.check_batch(&reply, "nextBatch", seen..(seen + 4).min(DOCUMENTS));
            }
            if seen != DOCUMENTS {
                self.wrong(format!("a cursor had {seen} documents"));
            }
            return Turn::Whole;
        }
    }

    async fn transact(&mut self, may_vanish: bool) -> Turn {
        let (first, second, commits) = (self.any(), self.any(), self.random.up_to(3) > 0);
        self.transact_at(first, second, commits, may_vanish).await
    }

    async fn transact_at(&mut self, first: usize, second: usize, commits: bool, may_vanish: bool) -> Turn {
        self.tally.transactions += 1;
        let begun = Instant::now();
        loop {
            let before = self.counts;
            self.transaction += 1;
            match self.try_transaction(first, second, commits, may_vanish).await {
                Ok(turn) => {
                    if turn == Turn::Abandoned || !commits {
                        self.counts = before;
                    }
                    return turn;
                }
                Err(Again) => self.counts = before,
            }
            if begun.elapsed() > PATIENCE {
                self.wrong(format!("a transaction did not succeed in {PATIENCE:?}"));
                return Turn::Whole;
            }
        }
    }

    async fn try_transaction(
        &mut self,
        first: usize,
        second: usize,
        commits: bool,
        may_vanish: bool,
    ) -> Result<Turn, Again> {
        self.written.clear();
        for (id, starts) in [(first, true), (second, false)] {
            let mut body = self.part(self.increment(id));
            if starts {
                body.append(cmap_tokio::bson::cstr!("startTransaction"), true);
            }
            let reply = self.ask(body).await;
            if let Some(code) = code(&reply) {
                return Err(self.again(code, &reply, "TransientTransactionError").await);
            }
            self.counts[id] += 1;
            self.written.push(id);
            self.check_incremented(&reply, id);
            if may_vanish && self.random.up_to(9) == 0 {
                return Ok(Turn::Abandoned);
            }
        }
        self.written.clear();
        let end = if commits {
            rawdoc! { "commitTransaction": 1 }
        } else {
            rawdoc! { "abortTransaction": 1 }
        };
        let begun = Instant::now();
        loop {
            let mut body = self.part(end.clone());
            if commits {
                body.append(cmap_tokio::bson::cstr!("writeConcern"), rawdoc! { "w": "majority" });
            }
            let reply = self.ask_in("admin", body).await;
            match code(&reply) {
                None => return Ok(Turn::Whole),
                // An abort that finds no transaction has what it wanted.
                Some(_) if !commits => return Ok(Turn::Whole),
                Some(code) if is_labelled(&reply, "TransientTransactionError") => {
                    return Err(self.again(code, &reply, "TransientTransactionError").await);
                }
                Some(code) => self.may_repeat(code, begun, &reply),
            }
            if begun.elapsed() > PATIENCE {
                return Ok(Turn::Whole);
            }
            self.rest(&reply).await;
        }
    }

    /// A write that is repeated under its number until it is answered.
    async fn number_write(&mut self, mut body: RawDocumentBuf) -> RawDocumentBuf {
        self.transaction += 1;
        body.append(cmap_tokio::bson::cstr!("lsid"), self.lsid());
        body.append(cmap_tokio::bson::cstr!("txnNumber"), self.transaction);
        body.append(cmap_tokio::bson::cstr!("writeConcern"), rawdoc! { "w": "majority" });
        self.ask_until_answered(body).await
    }

    async fn ask_until_answered(&mut self, body: RawDocumentBuf) -> RawDocumentBuf {
        let begun = Instant::now();
        loop {
            let reply = self.ask(body.clone()).await;
            match code(&reply) {
                None => return reply,
                Some(code) => self.may_repeat(code, begun, &reply),
            }
            self.rest(&reply).await;
            if begun.elapsed() > PATIENCE {
                return reply;
            }
        }
    }

    async fn again(&mut self, code: i32, reply: &RawDocument, label: &str) -> Again {
        *self.tally.repeated.entry(code).or_default() += 1;
        if !is_labelled(reply, label) && !is_labelled(reply, "SystemOverloadedError") {
            self.wrong(format!("an error of a transaction that cannot be repeated: {reply:?}"));
        }
        self.rest(reply).await;
        Again
    }

    /// Counts an error, which has to be one that the client may repeat: of a failover, or of overload.
    fn may_repeat(&mut self, code: i32, begun: Instant, reply: &RawDocument) {
        *self.tally.repeated.entry(code).or_default() += 1;
        // HostUnreachable, CursorNotFound, NetworkTimeout; and whatever says that it is of overload.
        let is_known = matches!(code, 6 | 43 | 89) || is_labelled(reply, "SystemOverloadedError");
        if !is_known || begun.elapsed() > PATIENCE {
            self.wrong(format!("an error after {:?}: {reply:?}", begun.elapsed()));
        }
    }

    /// As drivers do it when too many wait: two retries, each after a pause by chance, the second one up to twice as long. Then it is the
    /// application's turn to ask again.
    async fn rest(&mut self, reply: &RawDocument) {
        let backoff = CommandReply::read(reply).failure().and_then(|error| error.base_backoff());
        let most = match (backoff, self.refusals % 3) {
            (Some(_), 0) => return,
            (Some(base), number) => base * 2_u32.pow(number),
            (None, _) => Duration::from_millis(200),
        };
        let micros = self.random.up_to(u64::try_from(most.as_micros()).unwrap());
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    async fn ask(&mut self, body: RawDocumentBuf) -> RawDocumentBuf {
        self.ask_in("load", body).await
    }

    /// Runs a command, at its pace.
    async fn ask_in(&mut self, database: &str, body: RawDocumentBuf) -> RawDocumentBuf {
        tokio::time::sleep_until(self.next).await;
        let begun = Instant::now();
        // One that is late does not catch up: the pace is the most that it does.
        self.next = begun.max(self.next + self.pace);
        self.doing.clone_from(&body);
        let ran = self.connection.exchange((database, body)).await.map(|reply| RawDocument::to_owned(&reply));
        let reply = match ran {
            Ok(reply) => reply,
            Err(error) => {
                assert!(matches!(error.kind, CommandErrorKind::Server(_)), "client {}: {error}", self.number);
                RawDocument::to_owned(&self.connection.last_reply().unwrap())
            }
        };
        self.tally.commands += 1;
        let is_refused = is_labelled(&reply, "SystemOverloadedError");
        self.refusals = if is_refused { self.refusals + 1 } else { 0 };
        self.tally.refused += u64::from(is_refused);
        let name = self.doing.iter().next().unwrap().unwrap().0.as_str().to_owned();
        self.tally.slowest = max(core::mem::take(&mut self.tally.slowest), (begun.elapsed(), name));
        reply
    }

    fn check_batch(&mut self, reply: &RawDocument, batch: &str, ids: core::ops::Range<usize>) -> usize {
        let documents = reply.get_document("cursor").ok().and_then(|cursor| cursor.get_array(batch).ok());
        let documents: Vec<_> = documents.into_iter().flatten().filter_map(|it| it.ok()?.as_document()).collect();
        let expected: Vec<_> = ids.map(|id| (self.id(id), self.number, self.counts[id])).collect();
        let found: Vec<_> = documents.iter().map(|document| read(document)).collect();
        if found.iter().ne(expected.iter().map(|it| Some(*it)).collect::<Vec<_>>().iter()) {
            self.wrong(format!("expected {expected:?}, found {reply:?}"));
        }
        found.len()
    }

    fn check_incremented(&mut self, reply: &RawDocument, id: usize) {
        let found = reply.get_document("value").ok().and_then(read);
        let expected = (self.id(id), self.number, self.counts[id]);
        if found != Some(expected) {
            self.wrong(format!("expected {expected:?}, found {reply:?}"));
        }
    }

    fn wrong(&mut self, what: String) {
        self.tally.wrong.push(format!("client {}: {what}", self.number));
    }

    fn increment(&self, id: usize) -> RawDocumentBuf {
        let (query, update) = (rawdoc! { "_id": self.id(id) }, rawdoc! { "$inc": { "n": 1_i64 } });
        rawdoc! { "findAndModify": self.collection(), "query": query, "update": update, "new": true }
    }

    fn part(&self, mut body: RawDocumentBuf) -> RawDocumentBuf {
        body.append(cmap_tokio::bson::cstr!("lsid"), self.lsid());
        body.append(cmap_tokio::bson::cstr!("txnNumber"), self.transaction);
        body.append(cmap_tokio::bson::cstr!("autocommit"), false);
        body
    }

    fn lsid(&self) -> RawDocumentBuf {
        rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: self.session.to_vec() } }
    }

    fn collection(&self) -> String {
        collection(self.number)
    }

    fn id(&self, document: usize) -> i64 {
        self.number * 100 + i64::try_from(document).unwrap()
    }

    fn any(&mut self) -> usize {
        usize::try_from(self.random.up_to(DOCUMENTS as u64 - 1)).unwrap()
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.cursors += other.cursors;
        self.transactions += other.transactions;
        self.refused += other.refused;
        self.work += other.work;
        other.repeated.into_iter().for_each(|(code, count)| *self.repeated.entry(code).or_default() += count);
        self.wrong.extend(other.wrong);
        self.slowest = max(core::mem::take(&mut self.slowest), other.slowest);
    }
}

/// Waits until no open transaction has written to the collections of these clients: one that writes there conflicts with it. How many
/// collections there are.
pub(crate) async fn wait_until_unlocked(directly: &Client, numbers: core::ops::Range<i64>, soon: Duration) -> usize {
    let begun = Instant::now();
    let collections: BTreeSet<_> = numbers.map(collection).collect();
    for collection in &collections {
        loop {
            let mut session = directly.start_session().unwrap();
            session.start_transaction().unwrap();
            let every = rawdoc! { "q": {}, "u": { "$set": { "seen": true } }, "multi": true };
            let update = rawdoc! { "update": collection.as_str(), "updates": [every] };
            let written = directly.operation(("load", update)).on(Writable).in_session(&mut session).run().await;
            // One that has failed is there no more.
            let _ = session.abort_transaction().await;
            let Err(error) = written else { break };
            assert!(begun.elapsed() < soon, "a transaction was left upstream: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    collections.len()
}

/// The collection of a client, in the database `load`.
pub(crate) fn collection(number: i64) -> String {
    format!("of-{}", number / CLIENTS)
}

fn read(document: &RawDocument) -> Option<(i64, i64, i64)> {
    Some((document.get_i64("_id").ok()?, document.get_i64("by").ok()?, document.get_i64("n").ok()?))
}

fn open_cursor(reply: &RawDocument) -> Option<i64> {
    reply.get_document("cursor").ok()?.get_i64("id").ok().filter(|id| *id != 0)
}

fn code(reply: &RawDocument) -> Option<i32> {
    CommandReply::read(reply).failure().map(|error| error.code.unwrap_or_default())
}

fn is_labelled(reply: &RawDocument, label: &str) -> bool {
    let labels = reply.get_array("errorLabels").ok();
    labels.into_iter().flatten().any(|it| it.is_ok_and(|it| it.as_str() == Some(label)))
}
