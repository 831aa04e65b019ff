//! Carrying out a test's operations, and judging the result of each.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use bson::{Bson, Document, doc, oid::ObjectId};
use cmap_core::options::W;
use cmap_core::pool::Purpose;

use super::Stop;
use super::client::{Client, Engine};
use super::commands::Caller;
use super::cursor::Cursor;
use super::data::{Outcome, Place, Plan};
use super::entities::{self, Entities, Live, Thread};
use super::failure::{Failure, Retry};
use super::format::{Action, Data, Entity, Expectation, Occurrences, Operation, Special};
use crate::suites::requirement::Topology;

/// How long to wait for events and threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// A test while it runs.
pub struct Running<E: Engine> {
    /// What it runs on.
    pub engine: E,
    /// The deployment that it runs against.
    pub topology: Topology,
    /// Its entities.
    pub entities: Entities<E>,
    ids: Cell<u32>,
}

/// The result of an operation, before it is judged.
type Ended = Result<Option<Bson>, Failure>;

impl<E: Engine> Running<E> {
    /// A test that has not begun.
    pub fn new(engine: E, topology: Topology) -> Self {
        Self { engine, topology, entities: Entities::default(), ids: Cell::new(0) }
    }

    /// Makes an entity. A client that is to have connections first gets them.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn create(&self, entity: &Entity) -> Result<(), Stop> {
        let Entity::Client(client) = entity else { return self.entities.create(entity) };
        let caller = entities::connect(&self.engine, client).await?;
        self.entities.insert(&client.id, Live::Client(caller.clone()))?;
        if let Some(patience) = client.await_min_pool_size_ms {
            let wanted = u64::from(caller.options.pool.min_pool_size.unwrap_or_default());
            let is_full = || caller.client.available() >= wanted;
            if !self.engine.wait(Duration::from_millis(patience), is_full).await {
                return Err(Stop::failed(format!("the client \"{}\" does not get to minPoolSize", client.id)));
            }
            caller.journal.clear();
        }
        Ok(())
    }

    /// Carries out an operation and judges its result.
    pub fn carry_out(self: Rc<Self>, operation: Operation) -> Pin<Box<dyn Future<Output = Result<(), Stop>>>> {
        Box::pin(async move {
            let ended = match &operation.action {
                Action::Special(special) => self.special(&operation, special).await?,
                Action::Data(data) => self.data(&operation, data).await?,
            };
            self.judge(&operation, ended)
        })
    }

    fn judge(&self, operation: &Operation, ended: Ended) -> Result<(), Stop> {
        let saved = |name: &str| self.entities.value(name);
        let wrong = |text: String| Err(Stop::failed(format!("{} on {}: {text}", operation.name, operation.object)));
        match (&operation.expectation, &ended) {
            (Expectation::Anything, _) | (Expectation::Success, Ok(_)) => {}
            (Expectation::Success | Expectation::Result(_), Err(failure)) => {
                return wrong(format!("expected no error, got {failure}"));
            }
            (Expectation::Result(pattern), Ok(result)) => {
                if let Err(mismatch) = pattern.compare(result.as_ref(), &saved) {
                    return wrong(format!("its result: {mismatch}"));
                }
            }
            (Expectation::Error(_), Ok(_)) => return wrong("expected an error, got none".into()),
            (Expectation::Error(expected), Err(failure)) => {
                if let Some(mismatch) = failure.mismatch(expected, &saved) {
                    return wrong(mismatch);
                }
            }
        }
        match (&operation.save_result_as, ended) {
            (Some(name), Ok(Some(result))) => self.entities.insert(name, Live::Value(result)),
            (_, Ok(_) | Err(_)) => Ok(()),
        }
    }

    async fn special(self: &Rc<Self>, operation: &Operation, special: &Special) -> Result<Ended, Stop> {
        match special {
            Special::FailPoint { client, fail_point } => {
                let caller = self.entities.client(client)?;
                let set = command(&caller, "admin", &fail_point.0, None).await;
                return set.map(|_| Ok(None)).map_err(|failure| Stop::failed(format!("the fail point: {failure}")));
            }
            Special::CreateEntities { entities } => {
                for entity in entities {
                    self.create(entity).await?;
                }
            }
            Special::WaitForEvent(occurrences) => self.wait_for_event(occurrences).await?,
            Special::AssertEventCount(Occurrences { client, event, count }) => {
                self.engine.settle().await;
                let found = self.count(client, event)?;
                if found != *count {
                    return Err(Stop::failed(format!("{client} has had {found} of {event:?}, expected {count}")));
                }
            }
            Special::RunOnThread { thread, operation } => {
                self.run_on_thread(&self.entities.thread(thread)?, operation);
            }
            Special::WaitForThread { thread: name } => {
                let thread = self.entities.thread(name)?;
                thread.is_closed.set(true);
                if thread.is_started.get() && !self.engine.wait(PATIENCE, || thread.is_done.get()).await {
                    return Err(Stop::failed(format!("the thread \"{name}\" does not come to an end")));
                }
                if let Some(stop) = thread.stop.take() {
                    return Err(stop);
                }
            }
            Special::Wait { ms } => self.engine.sleep(Duration::from_millis(*ms)).await,
            Special::AssertNumberConnectionsCheckedOut { client, connections } => {
                let found = self.entities.client(client)?.client.checked_out();
                if found != *connections {
                    let text = format!("{client} has {found} connections checked out, expected {connections}");
                    return Err(Stop::failed(text));
                }
            }
            Special::RecordTopologyDescription { client, id } => {
                let topology_type = self.entities.client(client)?.client.topology_type();
                self.entities.insert(id, Live::Value(topology_type.into()))?;
            }
            Special::AssertTopologyType { topology_description, topology_type } => {
                let found = self.entities.value(topology_description);
                if found.as_ref().and_then(Bson::as_str) != Some(topology_type) {
                    return Err(Stop::failed(format!("the topology is {found:?}, expected {topology_type}")));
                }
            }
            Special::Close {} => match self.entities.get(&operation.object)? {
                Live::Client(caller) => caller.close().await,
                Live::Cursor(cursor) => {
                    let taken = cursor.borrow_mut().take();
                    if let Some(mut taken) = taken {
                        taken.close().await;
                        cursor.replace(Some(taken));
                    }
                }
                Live::Place(..) | Live::Thread(_) | Live::Session | Live::Value(_) => {
                    return Err(Stop::failed(format!("\"{}\" cannot be closed", operation.object)));
                }
            },
            Special::AppendMetadata { driver_info_options } => {
                let caller = self.entities.client(&operation.object)?;
                return Ok(caller.client.append_metadata(driver_info_options).map(|()| None));
            }
            Special::IterateUntilDocumentOrError {} => return self.iterate(&operation.object).await,
            Special::RunCommand { command: body, timeout_ms, .. } => {
                let (caller, place) = self.place(&operation.object)?;
                let timeout = timeout_ms.map(Duration::from_millis);
                let ended = command(&caller, &place.database, &body.0, timeout).await;
                self.check_retry(&caller, Retry::Command, ended.as_ref().err())?;
                return Ok(ended.map(|reply| Some(reply.into())));
            }
        }
        Ok(Ok(None))
    }

    async fn wait_for_event(&self, occurrences: &Occurrences) -> Result<(), Stop> {
        let Occurrences { client, event, count } = occurrences;
        self.entities.client(client)?;
        let has_happened = || self.count(client, event).is_ok_and(|found| found >= *count);
        if self.engine.wait(PATIENCE, has_happened).await {
            return Ok(());
        }
        let found = self.count(client, event)?;
        Err(Stop::failed(format!("{client} has had {found} of {event:?} after {PATIENCE:?}, expected {count}")))
    }

    fn count(&self, client: &str, event: &super::format::ExpectedEvent) -> Result<usize, Stop> {
        let saved = |name: &str| self.entities.value(name);
        Ok(self.entities.client(client)?.journal.count(event, &saved))
    }

    /// The first operation starts the thread.
    fn run_on_thread(self: &Rc<Self>, thread: &Rc<Thread>, operation: &Operation) {
        thread.queue.borrow_mut().push_back(operation.clone());
        if thread.is_started.replace(true) {
            return;
        }
        let (running, thread) = (Rc::clone(self), Rc::clone(thread));
        self.engine.spawn(Box::pin(async move {
            loop {
                let next = thread.queue.borrow_mut().pop_front();
                let Some(next) = next else {
                    if thread.is_closed.get() {
                        break;
                    }
                    let has_news = || thread.is_closed.get() || !thread.queue.borrow().is_empty();
                    running.engine.wait(Duration::MAX, has_news).await;
                    continue;
                };
                if let Err(stop) = Rc::clone(&running).carry_out(next).await {
                    thread.stop.replace(Some(stop));
                    break;
                }
            }
            thread.is_done.set(true);
        }));
    }

    fn place(&self, name: &str) -> Result<(Caller<E::Client>, Place), Stop> {
        match self.entities.get(name)? {
            Live::Place(caller, place) => Ok((caller, place)),
            Live::Client(caller) => Ok((caller, Place { database: "admin".into(), collection: None })),
            Live::Thread(_) | Live::Session | Live::Cursor(_) | Live::Value(_) => {
                Err(Stop::failed(format!("\"{name}\" is not a client, database or collection")))
            }
        }
    }

    async fn data(&self, operation: &Operation, data: &Data) -> Result<Ended, Stop> {
        let (caller, place) = self.place(&operation.object)?;
        let mut plan = Plan::new(data, &place, || self.next_id()).map_err(Stop::failed)?;
        add_write_concern(&mut plan, &caller);
        let timeout = data.timeout_ms.map(Duration::from_millis);
        let (retry, ended) = match attempt(&caller, &plan, timeout).await {
            Err((retry, failure)) => (retry, Err(failure)),
            Ok(Attempt::Cursor(cursor)) => {
                let name = operation.save_result_as.as_deref().unwrap_or("\0cursor");
                self.entities.insert(name, Live::Cursor(Rc::new(RefCell::new(Some(*cursor)))))?;
                (plan.retry, Ok(None))
            }
            Ok(Attempt::Result(result)) => (plan.retry, Ok(Some(result))),
        };
        self.check_retry(&caller, retry, ended.as_ref().err())?;
        Ok(ended)
    }

    async fn iterate(&self, name: &str) -> Result<Ended, Stop> {
        let Live::Cursor(cursor) = self.entities.get(name)? else {
            return Err(Stop::failed(format!("\"{name}\" is not a cursor")));
        };
        let taken = cursor.borrow_mut().take();
        let Some(mut taken) = taken else { return Err(Stop::failed(format!("the cursor \"{name}\" is in use"))) };
        let next = taken.next().await;
        cursor.replace(Some(taken));
        match next {
            Ok(Some(document)) => Ok(Ok(Some(document.into()))),
            Ok(None) => Ok(Err(Failure::client("the cursor has no more documents"))),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Where a driver would now try the operation again, the test is about that retry, which this client does not have.
    fn check_retry(&self, caller: &Caller<E::Client>, retry: Retry, failure: Option<&Failure>) -> Result<(), Stop> {
        let Some(failure) = failure else { return Ok(()) };
        let reads = caller.options.retry_reads != Some(false);
        let writes = caller.options.retry_writes != Some(false);
        // Only servers that replicate know transaction numbers.
        let retry = if retry == Retry::Write && self.topology == Topology::Single { Retry::ManyWrites } else { retry };
        if failure.is_retried(retry, reads, writes) {
            return Err(Stop::Skipped("needs retries, which are a driver's business and not a pool's".into()));
        }
        Ok(())
    }

    fn next_id(&self) -> ObjectId {
        let number = self.ids.get() + 1;
        self.ids.set(number);
        let [a, b, c, d] = number.to_be_bytes();
        ObjectId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
    }
}

/// What an operation on data leads to.
enum Attempt<C: Client> {
    Result(Bson),
    Cursor(Box<Cursor<C>>),
}

async fn attempt<C: Client>(
    caller: &Caller<C>,
    plan: &Plan,
    timeout: Option<Duration>,
) -> Result<Attempt<C>, (Retry, Failure)> {
    let own = |failure| (plan.retry, failure);
    let purpose = if plan.outcome.of_reply(&Document::new()).is_none() { Purpose::Cursor } else { Purpose::Other };
    let session = caller.session(timeout);
    let mut connection = caller.check_out(purpose, &session).await.map_err(own)?;
    let reply = caller.run(&mut connection, &plan.database, &plan.command, &session).await.map_err(own)?;
    if let Some(result) = plan.outcome.of_reply(&reply) {
        return Ok(Attempt::Result(result));
    }
    let mut cursor = Cursor::new(caller, session, &plan.command, &reply, connection).map_err(own)?;
    if plan.outcome == Outcome::Cursor {
        return Ok(Attempt::Cursor(Box::new(cursor)));
    }
    let mut documents = Vec::new();
    loop {
        match cursor.next().await {
            Ok(Some(document)) => documents.push(document),
            Ok(None) => return Ok(Attempt::Result(plan.outcome.of_documents(documents))),
            Err(failure) => {
                cursor.close().await;
                return Err((Retry::GetMore, failure));
            }
        }
    }
}

async fn command<C: Client>(
    caller: &Caller<C>,
    database: &str,
    command: &Document,
    timeout: Option<Duration>,
) -> Result<Document, Failure> {
    let session = caller.session(timeout);
    let mut connection = caller.check_out(Purpose::Other, &session).await?;
    caller.run(&mut connection, database, command, &session).await
}

/// Writes are acknowledged as the client's options say.
fn add_write_concern<C: Client>(plan: &mut Plan, caller: &Caller<C>) {
    if !matches!(plan.retry, Retry::Write | Retry::ManyWrites) {
        return;
    }
    let options = &caller.options.write_concern;
    let mut concern = Document::new();
    match &options.w {
        Some(W::Members(members)) => drop(concern.insert("w", i64::from(*members))),
        Some(W::Named(name)) => drop(concern.insert("w", name.as_str())),
        None => {}
    }
    if let Some(journal) = options.journal {
        concern.insert("j", journal);
    }
    if let Some(timeout) = options.timeout {
        concern.insert("wtimeout", i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
    }
    if !concern.is_empty() {
        plan.command.extend(doc! { "writeConcern": concern });
    }
}
