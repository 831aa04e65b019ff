//! Carrying out a test's operations, and judging the result of each.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawBson, doc, oid::ObjectId};
use cmap_core::options::ReadPreference;
use cmap_core::server::ServerType;
use cmap_core::topology::{ServerSelector, TopologyDescription};
use cmap_sim::CursorOptions;

use super::attempt::{Attempt, attempt};
use super::client::{Client, Engine};
use super::commands::{Caller, Held, Sending, is_in_transaction};
use super::cursor::Cursor;
use super::data::{self, Outcome, Place, Plan};
use super::entities::{self, Entities, Live, Thread};
use super::failure::Failure;
use super::format::{
    Action, CursorCommand, CursorType, Data, Document as Written, Entity, Expectation, MAX_TIME, Method, Occurrences,
    Operation, Special,
};
use super::spans::Collector;
use super::transaction::preference;
use super::writes::{Model, Problem};
use super::{Stop, bulk_write, client_bulk_write};
use crate::suites::requirement::Topology;

/// How long to wait for events and threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the test server says of what it does not have.
const NOT_SUPPORTED: &str = "is not supported by this test server";

/// A test while it runs.
pub struct Running<E: Engine> {
    /// What it runs on.
    pub engine: E,
    /// The deployment that it runs against.
    pub topology: Topology,
    /// Its entities.
    pub entities: Entities<E>,
    /// What the operations that failed said.
    pub failures: RefCell<Vec<String>>,
    /// The spans of its clients.
    pub spans: Collector,
    ids: Cell<u32>,
}

/// The result of an operation, before it is judged.
pub(super) type Ended = Result<Option<Bson>, Failure>;

impl<E: Engine> Running<E> {
    /// A test that has not begun.
    pub fn new(engine: E, topology: Topology) -> Self {
        let (entities, failures, spans) = Default::default();
        Self { engine, topology, entities, failures, spans, ids: Cell::new(0) }
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
            let ended = Rc::clone(&self).perform(operation.clone()).await?;
            self.judge(&operation, ended)
        })
    }

    /// Carries out an operation, whose result is not judged yet.
    pub(super) fn perform(self: Rc<Self>, operation: Operation) -> Pin<Box<dyn Future<Output = Result<Ended, Stop>>>> {
        Box::pin(async move {
            match &operation.action {
                Action::Special(special) => self.special(&operation, special).await,
                Action::Data(data) => self.data(&operation, data).await,
            }
        })
    }

    /// Judges the result of an operation.
    pub(super) fn judge(&self, operation: &Operation, ended: Ended) -> Result<(), Stop> {
        let saved = |name: &str| self.entities.value(name);
        let wrong = |text: String| Err(Stop::failed(format!("{} on {}: {text}", operation.name, operation.object)));
        self.failures.borrow_mut().extend(ended.as_ref().err().map(|failure| failure.message.clone()));
        match (&operation.expectation, &ended) {
            (Expectation::Anything, _) | (Expectation::Success, Ok(_)) => {}
            (Expectation::Success | Expectation::Result(_), Err(failure))
                if failure.message.contains(NOT_SUPPORTED) =>
            {
                return Err(Stop::Skipped(failure.message.clone()));
            }
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
            Special::FailPoint { client, session, fail_point } => {
                let session = session.as_deref().map(|name| self.entities.session(name)).transpose()?;
                let caller = self.entities.client(client)?;
                let primary = ReadPreference::default().into();
                let set = command(&caller, "admin", &fail_point.0, primary, session, None).await;
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
                let description = describe(&self.entities.client(client)?.client.description());
                self.entities.insert(id, Live::Value(description.into()))?;
            }
            Special::AssertTopologyType { topology_description, topology_type } => {
                let found = self.entities.value(topology_description);
                let kept = found.as_ref().and_then(Bson::as_document);
                if kept.and_then(|kept| kept.get_str("type").ok()) != Some(topology_type) {
                    return Err(Stop::failed(format!("the topology is {found:?}, expected {topology_type}")));
                }
            }
            Special::WaitForPrimaryChange { client, prior_topology_description, timeout_ms } => {
                let caller = self.entities.client(client)?;
                let prior = self.entities.value(prior_topology_description);
                let prior = prior.as_ref().and_then(Bson::as_document).and_then(|prior| prior.get("primary"));
                let has_changed = || {
                    let now = describe(&caller.client.description());
                    now.contains_key("primary") && now.get("primary") != prior
                };
                let patience = timeout_ms.map_or(PATIENCE, Duration::from_millis);
                if !self.engine.wait(patience, has_changed).await {
                    return Err(Stop::failed(format!("{client} knows no other primary after {patience:?}")));
                }
            }
            Special::Close { timeout_ms } => match self.entities.get(&operation.object)? {
                Live::Client(caller) => caller.client.close().await,
                Live::Cursor(cursor) => {
                    let taken = cursor.borrow_mut().take();
                    if let Some(taken) = taken {
                        taken.close(timeout_ms.map(Duration::from_millis)).await;
                    }
                }
                Live::Place(..) | Live::Thread(_) | Live::Session(..) | Live::Value(_) => {
                    return Err(Stop::failed(format!("\"{}\" cannot be closed", operation.object)));
                }
            },
            Special::AppendMetadata { driver_info_options } => {
                let caller = self.entities.client(&operation.object)?;
                return Ok(caller.client.append_metadata(driver_info_options).map(|()| None));
            }
            Special::IterateUntilDocumentOrError {} => return self.iterate(&operation.object, false).await,
            Special::IterateOnce {} => return self.iterate(&operation.object, true).await,
            Special::AssertSameLsidOnLastTwoCommands { client } => self.compare_last_lsids(client, true).await?,
            Special::AssertDifferentLsidOnLastTwoCommands { client } => self.compare_last_lsids(client, false).await?,
            Special::AssertSessionDirty { session } => self.check_dirty(session, true)?,
            Special::AssertSessionNotDirty { session } => self.check_dirty(session, false)?,
            Special::StartTransaction(options) => {
                return Ok(self.start_transaction(&operation.object, options)?.map(|()| None));
            }
            Special::CommitTransaction { timeout_ms } => {
                return Ok(self.end_transaction(&operation.object, true, *timeout_ms).await?.map(|()| None));
            }
            Special::AbortTransaction { timeout_ms } => {
                return Ok(self.end_transaction(&operation.object, false, *timeout_ms).await?.map(|()| None));
            }
            Special::WithTransaction(arguments) => {
                return Ok(self.with_transaction(&operation.object, arguments).await?.map(|()| None));
            }
            Special::GetSnapshotTime {} => {
                let held = self.entities.session(&operation.object)?;
                let at = held.borrow().as_ref().and_then(E::Client::snapshot_time);
                return Ok(Ok(at.map(Bson::Timestamp)));
            }
            Special::AssertSessionTransactionState { session, state } => {
                self.check_transaction_state(session, state)?;
            }
            Special::AssertSessionPinned { session } => self.check_pinned(session, true)?,
            Special::AssertSessionUnpinned { session } => self.check_pinned(session, false)?,
            Special::TargetedFailPoint { session, fail_point } => {
                self.targeted_fail_point(session, fail_point).await?;
            }
            Special::AssertCollectionExists(name) => self.check_collection(name, true)?,
            Special::AssertCollectionNotExists(name) => self.check_collection(name, false)?,
            Special::AssertIndexExists(name) => self.check_index(name, true)?,
            Special::AssertIndexNotExists(name) => self.check_index(name, false)?,
            Special::EndSession {} => drop(self.entities.session(&operation.object)?.take()),
            Special::BulkWrite { requests, ordered, comment, variables, timeout_ms, session, .. } => {
                let (caller, place) = self.place(&operation.object)?;
                let session = session.as_deref().map(|name| self.entities.session(name)).transpose()?;
                let models = match self.models(requests)? {
                    Ok(models) => models,
                    Err(failure) => return Ok(Err(failure)),
                };
                let options = bulk_write::Options {
                    ordered: ordered.unwrap_or(true),
                    comment: comment.as_ref().map(|comment| comment.0.clone()),
                    variables: variables.as_ref().map(|variables| variables.0.clone()),
                };
                let session = caller.session(session, place.limit(*timeout_ms));
                return Ok(bulk_write::run(&caller, &place, &models, &options, &session).await.map(Some));
            }
            Special::ClientBulkWrite(write) => {
                let caller = self.entities.client(&operation.object)?;
                let session = write.session.as_deref().map(|name| self.entities.session(name)).transpose()?;
                let models = match self.models(&write.models)? {
                    Ok(models) => models,
                    Err(failure) => return Ok(Err(failure)),
                };
                let session = caller.session(session, write.timeout_ms.map(Duration::from_millis));
                return Ok(client_bulk_write::run(&caller, &models, write.fields(), &session).await.map(Some));
            }
            Special::Download { id, timeout_ms } => {
                return self.download(&operation.object, doc! { "_id": id.0.clone() }, *timeout_ms).await;
            }
            Special::DownloadByName { filename } => {
                return self.download(&operation.object, doc! { "filename": filename }, None).await;
            }
            Special::RunCursorCommand(cursor) => {
                let (caller, place) = self.place(&operation.object)?;
                let cursor = match self.command_cursor(&caller, &place, cursor).await? {
                    Ok(cursor) => cursor,
                    Err(failure) => return Ok(Err(failure)),
                };
                return Ok(cursor.all().await.map(|documents| Some(Outcome::Documents.of_documents(documents))));
            }
            Special::CreateCommandCursor(cursor) => {
                let (caller, place) = self.place(&operation.object)?;
                match self.command_cursor(&caller, &place, cursor).await? {
                    Ok(cursor) => {
                        let name = operation.save_result_as.as_deref().unwrap_or("\0cursor");
                        self.entities.insert(name, Live::Cursor(Rc::new(RefCell::new(Some(cursor)))))?;
                    }
                    Err(failure) => return Ok(Err(failure)),
                }
            }
            Special::RunCommand { command: body, command_name, timeout_ms, session, read_preference } => {
                let (caller, place) = self.place(&operation.object)?;
                let timeout = place.limit(*timeout_ms);
                let session = session.as_deref().map(|name| self.entities.session(name)).transpose()?;
                let of_transaction = || match &session {
                    Some(held) => caller.session(Some(Rc::clone(held)), None).preference_of_transaction(),
                    None => None,
                };
                let preference = read_preference.as_ref().map(preference).transpose()?;
                let preference = preference.or_else(of_transaction).unwrap_or_default();
                let body = with_name_first(&body.0, command_name.as_deref());
                let ended = command(&caller, &place.database, &body, preference.into(), session, timeout).await;
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
            Live::Client(caller) => {
                Ok((caller, Place { database: "admin".into(), collection: None, options: Box::default() }))
            }
            Live::Thread(_) | Live::Session(..) | Live::Cursor(_) | Live::Value(_) => {
                Err(Stop::failed(format!("\"{name}\" is not a client, database or collection")))
            }
        }
    }

    async fn data(&self, operation: &Operation, data: &Data) -> Result<Ended, Stop> {
        let (caller, place) = self.place(&operation.object)?;
        let timeout = place.limit(data.timeout_ms);
        let session = data.session.as_deref().map(|name| self.entities.session(name)).transpose()?;
        if let Some(refusal) = data::refusal(data) {
            return Ok(Err(Failure::client(refusal)));
        }
        let in_transaction = session.as_ref().is_some_and(is_in_transaction::<E::Client>);
        let mut plan = Plan::new(data, &place, in_transaction, || self.next_id()).map_err(Stop::failed)?;
        if timeout.or(caller.options.timeout).is_some() {
            plan.command.remove(MAX_TIME);
        }
        Ok(match attempt(&caller, &plan, &caller.session(session, timeout)).await {
            Err(failure) => Err(failure),
            Ok(Attempt::Cursor(cursor)) => {
                let name = operation.save_result_as.as_deref().unwrap_or("\0cursor");
                self.entities.insert(name, Live::Cursor(Rc::new(RefCell::new(Some(*cursor)))))?;
                Ok(None)
            }
            Ok(Attempt::Result(_)) if data.method == Method::CreateCollection => {
                self.name_collection(operation, caller, place, data)?;
                Ok(None)
            }
            Ok(Attempt::Result(result)) => Ok(Some(result)),
        })
    }

    /// The result of `createCollection` is the collection, as an entity.
    fn name_collection(
        &self,
        operation: &Operation,
        caller: Caller<E::Client>,
        place: Place,
        data: &Data,
    ) -> Result<(), Stop> {
        let Some(name) = &operation.save_result_as else { return Ok(()) };
        let collection = data.arguments.get_str("collection").ok().map(str::to_owned);
        self.entities.insert(name, Live::Place(caller, Place { collection, ..place }))
    }

    async fn command_cursor(
        &self,
        caller: &Caller<E::Client>,
        place: &Place,
        cursor: &CursorCommand,
    ) -> Result<Result<Cursor<E::Client>, Failure>, Stop> {
        let CursorCommand {
            command_name,
            command,
            cursor_type,
            batch_size,
            max_time_ms,
            comment,
            timeout_ms,
            timeout_mode,
            session,
        } = cursor;
        let session = session.as_deref().map(|name| self.entities.session(name)).transpose()?;
        let command = with_name_first(&command.0, Some(command_name));
        let mut options = CursorOptions::default();
        options.batch_size = *batch_size;
        options.max_await_time = max_time_ms.map(Duration::from_millis);
        options.comment = comment.as_ref().and_then(|comment| RawBson::try_from(comment.0.clone()).ok());
        options.timeout_mode = timeout_mode.map(data::timeout_mode);
        let is_tailable = command.get_bool("tailable").unwrap_or_default();
        if cursor_type.is_some_and(|kind| (kind == CursorType::NonTailable) == is_tailable) {
            return Ok(Err(Failure::client("the command makes a cursor of another type")));
        }
        let session = caller.session(session, place.limit(*timeout_ms));
        let sending = Sending { selector: ReadPreference::default().into(), is_once: true };
        Ok(caller.open(&place.database, &command, sending, Some(options), &session).await)
    }

    /// The content of a file in the default bucket of GridFS.
    async fn download(&self, bucket: &str, file: Document, timeout_ms: Option<u64>) -> Result<Ended, Stop> {
        let (caller, place) = self.place(bucket)?;
        // Both finds have one limit.
        let session = caller.session(None, place.limit(timeout_ms).or(caller.options.timeout));
        let find = |collection: &str, filter: Document| Plan {
            database: place.database.clone(),
            command: doc! { "find": collection, "filter": filter },
            reads: true,
            read_preference: place.options.read_preference.clone(),
            outcome: Outcome::Documents,
            documents: None,
            cursor: None,
        };
        let mut files = find("fs.files", file);
        files.command.insert("limit", 1);
        let found = match attempt(&caller, &files, &session).await {
            Ok(Attempt::Result(found)) => found,
            Ok(Attempt::Cursor(_)) => return Err(Stop::failed("a find without an end")),
            Err(failure) => return Ok(Err(failure)),
        };
        let id = found.as_array().and_then(|files| files.first()?.as_document()?.get("_id").cloned());
        let Some(id) = id else { return Ok(Err(Failure::client("there is no such file"))) };
        let mut chunks = find("fs.chunks", doc! { "files_id": id });
        chunks.command.insert("sort", doc! { "n": 1 });
        let ended = attempt(&caller, &chunks, &session).await;
        Ok(ended.map(|attempt| {
            let Attempt::Result(Bson::Array(chunks)) = attempt else { return None };
            let data = chunks.iter().filter_map(|chunk| chunk.as_document()?.get_binary_generic("data").ok());
            let bytes = data.flatten().copied().collect();
            Some(Binary { subtype: BinarySubtype::Generic, bytes }.into())
        }))
    }

    async fn iterate(&self, name: &str, once: bool) -> Result<Ended, Stop> {
        let Live::Cursor(cursor) = self.entities.get(name)? else {
            return Err(Stop::failed(format!("\"{name}\" is not a cursor")));
        };
        let taken = cursor.borrow_mut().take();
        let Some(mut taken) = taken else { return Err(Stop::failed(format!("the cursor \"{name}\" is in use"))) };
        let next = if once { taken.next_if_any().await } else { taken.next().await };
        cursor.replace(Some(taken));
        match next {
            Ok(Some(document)) => Ok(Ok(Some(document.into()))),
            Ok(None) if once => Ok(Ok(None)),
            Ok(None) => Ok(Err(Failure::client("the cursor has no more documents"))),
            Err(failure) => Ok(Err(failure)),
        }
    }

    async fn compare_last_lsids(&self, client: &str, are_same: bool) -> Result<(), Stop> {
        self.engine.settle().await;
        let lsids = self.entities.client(client)?.journal.last_lsids();
        let [Some(last), Some(before)] = lsids else {
            return Err(Stop::failed(format!("the last two commands of {client} have no sessions: {lsids:?}")));
        };
        match (last == before) == are_same {
            true => Ok(()),
            false => {
                Err(Stop::failed(format!("the last two commands of {client} have the sessions {before} and {last}")))
            }
        }
    }

    fn check_dirty(&self, name: &str, expected: bool) -> Result<(), Stop> {
        let held = self.entities.session(name)?;
        let found = held.borrow().as_ref().map(E::Client::is_dirty);
        match found == Some(expected) {
            true => Ok(()),
            false => {
                Err(Stop::failed(format!("whether the session \"{name}\" is dirty: {found:?}, expected {expected}")))
            }
        }
    }

    /// The writes of a bulk, or why a driver refuses them.
    fn models(&self, models: &[Written]) -> Result<Result<Vec<Model>, Failure>, Stop> {
        let models: Vec<_> = models.iter().map(|model| model.0.clone()).collect();
        match Model::read_all(&models, || self.next_id()) {
            Ok(models) => Ok(Ok(models)),
            Err(Problem::Refused(why)) => Ok(Err(Failure::client(why))),
            Err(Problem::Unknown(text)) => Err(Stop::failed(text)),
        }
    }

    fn next_id(&self) -> ObjectId {
        let number = self.ids.get() + 1;
        self.ids.set(number);
        let [a, b, c, d] = number.to_be_bytes();
        ObjectId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
    }
}

/// JSON objects have no order here, and a command's name is its first field.
fn with_name_first(command: &Document, name: Option<&str>) -> Document {
    let Some((name, value)) = name.and_then(|name| Some((name, command.get(name)?))) else { return command.clone() };
    let mut ordered = doc! { name: value.clone() };
    ordered.extend(command.clone().into_iter().filter(|(key, _)| key != name));
    ordered
}

async fn command<C: Client>(
    caller: &Caller<C>,
    database: &str,
    command: &Document,
    selector: ServerSelector,
    session: Option<Held<C>>,
    timeout: Option<Duration>,
) -> Result<Document, Failure> {
    let session = caller.session(session, timeout);
    let sending = Sending { selector, is_once: true };
    caller.run(database, command, sending, &session).await
}

/// A description of a topology as tests compare it: its type and, if it is known, its primary.
fn describe(description: &TopologyDescription) -> Document {
    let mut kept = doc! { "type": description.topology_type.name() };
    let primary = description.servers.iter().find(|server| server.server_type == ServerType::RsPrimary);
    kept.extend(primary.map(|server| ("primary".to_owned(), server.address.to_string().into())));
    kept
}
