//! Transactions: their options as tests write them, and the operations that begin, end and examine them.

use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;
use core::time::Duration;

use bson::{Bson, doc};
use cmap_core::options::{ClientOptions, ReadPreference, W, WriteConcern};
use cmap_core::session::{TransactionOptions, TransactionState};
use cmap_sim::{Consistency, SessionOptions};

use super::Stop;
use super::client::{Client, Engine};
use super::commands::Held;
use super::failure::Failure;
use super::format::{
    self, CollectionName, Document, IndexName, Operation, ReadPreferenceDocument, TransactionArguments,
    WithTransactionArguments,
};
use super::operations::Running;

/// The options of a session. `saved` are the results that tests have kept.
///
/// # Errors
/// They do not go together, or name what does not exist.
pub fn session_options(
    options: &format::SessionOptions,
    saved: impl Fn(&str) -> Option<Bson>,
) -> Result<SessionOptions, Stop> {
    let consistency = match (options.snapshot, options.causal_consistency) {
        (true, Some(true)) => {
            return Err(Stop::failed("a snapshot session is not causally consistent; set one of the two"));
        }
        (true, _) => {
            let at = match &options.snapshot_time {
                None => None,
                Some(name) => match saved(name) {
                    Some(Bson::Timestamp(at)) => Some(at),
                    other => return Err(Stop::failed(format!("\"{name}\" is no time: {other:?}"))),
                },
            };
            Consistency::Snapshot { at }
        }
        (false, Some(false)) => Consistency::None,
        (false, _) => Consistency::Causal,
    };
    let mut made = SessionOptions::from(consistency);
    made.transactions = transaction_options(&options.default_transaction_options)?;
    made.timeout = options.default_timeout_ms.map(Duration::from_millis);
    Ok(made)
}

/// The options of a transaction.
///
/// # Errors
/// They are none that a transaction has.
pub fn transaction_options(arguments: &TransactionArguments) -> Result<TransactionOptions, Stop> {
    let TransactionArguments { read_concern, write_concern, read_preference, max_commit_time_ms } = arguments;
    let mut options = TransactionOptions::default();
    options.read_concern_level = read_concern.as_ref().and_then(level);
    options.write_concern = write_concern.as_ref().map(concern);
    options.read_preference = read_preference.as_ref().map(preference).transpose()?;
    options.max_commit_time = max_commit_time_ms.map(Duration::from_millis);
    Ok(options)
}

fn level(concern: &Document) -> Option<String> {
    concern.0.get_str("level").ok().map(str::to_owned)
}

fn concern(document: &Document) -> WriteConcern {
    let number = |name: &str| {
        let value = document.0.get(name)?;
        value.as_i64().or_else(|| value.as_i32().map(i64::from)).and_then(|number| u64::try_from(number).ok())
    };
    let named = document.0.get_str("w").ok().map(|name| W::Named(name.to_owned()));
    let members = number("w").and_then(|members| u32::try_from(members).ok()).map(W::Members);
    let mut concern = WriteConcern::default();
    concern.w = named.or(members);
    concern.journal = document.0.get_bool("journal").ok();
    concern.timeout = number("wtimeoutMS").map(Duration::from_millis);
    concern
}

/// A read preference as tests write it.
///
/// # Errors
/// There is no such mode.
pub fn preference(document: &ReadPreferenceDocument) -> Result<ReadPreference, Stop> {
    let ReadPreferenceDocument { mode, tag_sets, max_staleness_seconds } = document;
    // Files write "Secondary", too.
    let mut letters = mode.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    let mode: String = first.into_iter().chain(letters).collect();
    let mut uri = format!("mongodb://h/?readPreference={mode}");
    for tags in tag_sets {
        let tags: Vec<_> = tags.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        uri.push_str(&format!("&readPreferenceTags={}", tags.join(",")));
    }
    uri.extend(max_staleness_seconds.map(|most| format!("&maxStalenessSeconds={most}")));
    let (options, _) = ClientOptions::parse(&uri).map_err(|error| Stop::failed(error.to_string()))?;
    Ok(options.read_preference)
}

impl<E: Engine> Running<E> {
    /// Starts a transaction.
    pub(super) fn start_transaction(
        &self,
        session: &str,
        arguments: &TransactionArguments,
    ) -> Result<Result<(), Failure>, Stop> {
        let options = transaction_options(arguments)?;
        self.with_session(session, |session| E::Client::start_transaction(session, options))
    }

    /// Commits a transaction, or aborts it.
    pub(super) async fn end_transaction(
        &self,
        session: &str,
        commit: bool,
        timeout_ms: Option<u64>,
    ) -> Result<Result<(), Failure>, Stop> {
        let held = self.entities.session(session)?;
        let mut taken = take::<E::Client>(&held)?;
        let ended = E::Client::end_transaction(&mut taken, commit, timeout_ms.map(Duration::from_millis)).await;
        held.replace(Some(taken));
        Ok(ended)
    }

    /// Runs operations in a transaction. Each is judged; its error is the callback's.
    pub(super) async fn with_transaction(
        self: &Rc<Self>,
        session: &str,
        arguments: &WithTransactionArguments,
    ) -> Result<Result<(), Failure>, Stop> {
        let WithTransactionArguments {
            callback,
            read_concern,
            write_concern,
            read_preference,
            max_commit_time_ms,
            timeout_ms,
        } = arguments;
        let options = transaction_options(&TransactionArguments {
            read_concern: read_concern.clone(),
            write_concern: write_concern.clone(),
            read_preference: read_preference.clone(),
            max_commit_time_ms: *max_commit_time_ms,
        })?;
        let held = self.entities.session(session)?;
        let client = self.entities.client_of(session)?.client;
        let stop = RefCell::new(None);
        let run = async || {
            for operation in callback {
                match Rc::clone(self).carry_out_and_raise(operation.clone()).await {
                    Ok(ended) => ended?,
                    Err(reason) => {
                        stop.replace(Some(reason));
                        return Err(Failure::client("an operation of the callback is not as expected"));
                    }
                }
            }
            Ok(())
        };
        let ended = client.with_transaction(&held, options, timeout_ms.map(Duration::from_millis), run).await;
        match stop.take() {
            Some(stop) => Err(stop),
            None => Ok(ended),
        }
    }

    /// Whether the transaction of a session is so far.
    pub(super) fn check_transaction_state(&self, session: &str, expected: &str) -> Result<(), Stop> {
        let state = self.with_session(session, |session| E::Client::transaction_state(session))?;
        let found = match state {
            TransactionState::None => "none",
            TransactionState::Starting => "starting",
            TransactionState::InProgress => "in_progress",
            TransactionState::Committed => "committed",
            TransactionState::Aborted => "aborted",
        };
        match found == expected {
            true => Ok(()),
            false => Err(Stop::failed(format!("the transaction of \"{session}\" is {found}, expected {expected}"))),
        }
    }

    /// Whether the transaction of a session keeps to one server.
    pub(super) fn check_pinned(&self, session: &str, expected: bool) -> Result<(), Stop> {
        let found = self.with_session(session, |session| E::Client::is_pinned(session))?;
        match found == expected {
            true => Ok(()),
            false => Err(Stop::failed(format!("\"{session}\" is pinned: {found}, expected {expected}"))),
        }
    }

    /// Sets a fail point on the server that the transaction of a session keeps to.
    pub(super) async fn targeted_fail_point(&self, session: &str, fail_point: &Document) -> Result<(), Stop> {
        let (held, caller) = (self.entities.session(session)?, self.entities.client_of(session)?);
        let mut taken = take::<E::Client>(&held)?;
        let set = caller.client.run_on_pinned(&mut taken, &with_name_first(&fail_point.0)).await;
        held.replace(Some(taken));
        set.map_err(|failure| Stop::failed(format!("the fail point: {failure}")))
    }

    /// Whether a collection is there.
    pub(super) fn check_collection(&self, name: &CollectionName, expected: bool) -> Result<(), Stop> {
        let CollectionName { database_name, collection_name } = name;
        let list = doc! { "listCollections": 1, "filter": { "name": collection_name } };
        let reply = self.engine.ask(database_name, &list).map_err(|failure| Stop::failed(failure.to_string()))?;
        let found = names(&reply).next().is_some();
        match found == expected {
            true => Ok(()),
            false => Err(Stop::failed(format!("{database_name}.{collection_name} exists: {found}"))),
        }
    }

    /// Whether an index is there.
    pub(super) fn check_index(&self, name: &IndexName, expected: bool) -> Result<(), Stop> {
        let IndexName { database_name, collection_name, index_name } = name;
        let found = match self.engine.ask(database_name, &doc! { "listIndexes": collection_name }) {
            Ok(reply) => names(&reply).any(|name| name == index_name),
            // There is no such collection.
            Err(_) => false,
        };
        match found == expected {
            true => Ok(()),
            false => Err(Stop::failed(format!("the index {index_name} of {collection_name} exists: {found}"))),
        }
    }

    fn with_session<T>(
        &self,
        name: &str,
        call: impl FnOnce(&mut <E::Client as Client>::Session) -> T,
    ) -> Result<T, Stop> {
        let held = self.entities.session(name)?;
        let mut session = held.borrow_mut();
        session.as_mut().map(call).ok_or_else(|| Stop::failed(format!("the session \"{name}\" is in use")))
    }

    async fn carry_out_and_raise(self: Rc<Self>, operation: Operation) -> Result<Result<(), Failure>, Stop> {
        let ended = Rc::clone(&self).perform(operation.clone()).await?;
        let raised = ended.as_ref().map(|_| ()).map_err(Clone::clone);
        self.judge(&operation, ended)?;
        Ok(raised)
    }
}

fn take<C: Client>(held: &Held<C>) -> Result<C::Session, Stop> {
    held.borrow_mut().take().ok_or_else(|| Stop::failed("the session is in use"))
}

/// The names in the first batch of a reply.
fn names(reply: &bson::Document) -> impl Iterator<Item = &str> {
    let cursor = reply.get_document("cursor").ok();
    let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch").ok()).into_iter().flatten();
    batch.filter_map(|item| item.as_document()?.get_str("name").ok())
}

/// JSON objects have no order here, and a command's name is its first field.
fn with_name_first(fail_point: &bson::Document) -> bson::Document {
    let name = fail_point.get("configureFailPoint").cloned().unwrap_or(Bson::Null);
    let mut ordered = doc! { "configureFailPoint": name };
    ordered.extend(fail_point.clone().into_iter().filter(|(key, _)| key != "configureFailPoint"));
    ordered
}
