//! The entities of a running test: what its operations are done with, by name.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

use bson::{Bson, Document};
use cmap_core::options::{ClientOptions, ServerApi, ServerApiVersion, Warning};

use super::Stop;
use super::client::{Client, Engine};
use super::commands::{Caller, Held};
use super::cursor::Cursor;
use super::data::Place;
use super::format::{ClientEntity, Entity, Operation, PlaceOptions, ServerApiEntity};
use super::journal::Journal;
use super::transaction;

/// The mechanism whose users have no password.
const OIDC: &str = "MONGODB-OIDC";

/// An entity while a test runs.
pub enum Live<C: Client> {
    /// A client.
    Client(Caller<C>),
    /// A database or a collection, seen by a client.
    Place(Caller<C>, Place),
    /// A thread.
    Thread(Rc<Thread>),
    /// A session of a client, and its id.
    Session(Caller<C>, Held<C>, Document),
    /// A cursor, which is away while an operation uses it.
    Cursor(Rc<RefCell<Option<Cursor<C>>>>),
    /// A value: a result that was saved, or the type of a topology.
    Value(Bson),
}

/// A thread: the operations it was given, and how far it is.
#[derive(Default)]
pub struct Thread {
    /// What it has still to do.
    pub queue: RefCell<VecDeque<Operation>>,
    /// Whether it runs, or has run.
    pub is_started: Cell<bool>,
    /// Whether nothing more will be given to it.
    pub is_closed: Cell<bool>,
    /// Whether it has ended.
    pub is_done: Cell<bool>,
    /// Why it ended too early.
    pub stop: RefCell<Option<Stop>>,
}

/// All entities of a test.
pub struct Entities<E: Engine> {
    live: RefCell<BTreeMap<String, Live<E::Client>>>,
}

impl<E: Engine> Default for Entities<E> {
    fn default() -> Self {
        Self { live: RefCell::default() }
    }
}

impl<C: Client> Clone for Live<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Client(caller) => Self::Client(caller.clone()),
            Self::Place(caller, place) => Self::Place(caller.clone(), place.clone()),
            Self::Thread(thread) => Self::Thread(Rc::clone(thread)),
            Self::Session(caller, held, lsid) => Self::Session(caller.clone(), Rc::clone(held), lsid.clone()),
            Self::Cursor(cursor) => Self::Cursor(Rc::clone(cursor)),
            Self::Value(value) => Self::Value(value.clone()),
        }
    }
}

impl<E: Engine> Entities<E> {
    /// The entity called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn get(&self, name: &str) -> Result<Live<E::Client>, Stop> {
        self.live.borrow().get(name).cloned().ok_or_else(|| Stop::failed(format!("there is no entity \"{name}\"")))
    }

    /// The client called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn client(&self, name: &str) -> Result<Caller<E::Client>, Stop> {
        let Live::Client(caller) = self.get(name)? else {
            return Err(Stop::failed(format!("the entity \"{name}\" is not a client")));
        };
        Ok(caller)
    }

    /// The thread called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn thread(&self, name: &str) -> Result<Rc<Thread>, Stop> {
        let Live::Thread(thread) = self.get(name)? else {
            return Err(Stop::failed(format!("the entity \"{name}\" is not a thread")));
        };
        Ok(thread)
    }

    /// The session called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn session(&self, name: &str) -> Result<Held<E::Client>, Stop> {
        let Live::Session(_, held, _) = self.get(name)? else {
            return Err(Stop::failed(format!("the entity \"{name}\" is not a session")));
        };
        Ok(held)
    }

    /// The client of the session called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn client_of(&self, name: &str) -> Result<Caller<E::Client>, Stop> {
        let Live::Session(caller, ..) = self.get(name)? else {
            return Err(Stop::failed(format!("the entity \"{name}\" is not a session")));
        };
        Ok(caller)
    }

    /// The value called `name`, if there is one. That of a session is its id.
    pub fn value(&self, name: &str) -> Option<Bson> {
        match self.live.borrow().get(name)? {
            Live::Value(value) => Some(value.clone()),
            Live::Session(_, _, lsid) => Some(lsid.clone().into()),
            Live::Client(_) | Live::Place(..) | Live::Thread(_) | Live::Cursor(_) => None,
        }
    }

    /// All clients.
    pub fn clients(&self) -> Vec<Caller<E::Client>> {
        let live = self.live.borrow();
        live.values()
            .filter_map(|live| if let Live::Client(caller) = live { Some(caller.clone()) } else { None })
            .collect()
    }

    /// All threads.
    pub fn threads(&self) -> Vec<Rc<Thread>> {
        let live = self.live.borrow();
        live.values()
            .filter_map(|live| if let Live::Thread(own) = live { Some(Rc::clone(own)) } else { None })
            .collect()
    }

    /// Keeps an entity under `name`.
    ///
    /// # Errors
    /// There is one of this name.
    pub fn insert(&self, name: &str, entity: Live<E::Client>) -> Result<(), Stop> {
        match self.live.borrow_mut().insert(name.to_owned(), entity) {
            None => Ok(()),
            Some(_) => Err(Stop::failed(format!("there are two entities \"{name}\""))),
        }
    }

    /// Forgets all entities. Connections that nothing else uses are thereby checked in.
    pub fn clear(&self) {
        let live = core::mem::take(&mut *self.live.borrow_mut());
        drop(live);
    }

    /// Makes an entity that needs no time for it; clients are [connected](connect) by the caller.
    ///
    /// # Errors
    /// What it refers to does not exist.
    pub fn create(&self, entity: &Entity) -> Result<(), Stop> {
        match entity {
            Entity::Client(_) => Ok(()),
            Entity::Database(database) => {
                let caller = self.client(&database.client)?;
                let options = Box::new(database.database_options.clone());
                let place = Place { database: database.database_name.clone(), collection: None, options };
                self.insert(&database.id, Live::Place(caller, place))
            }
            Entity::Collection(collection) => {
                let Live::Place(caller, place) = self.get(&collection.database)? else {
                    return Err(Stop::failed(format!("the entity \"{}\" is not a database", collection.database)));
                };
                let PlaceOptions { read_concern, read_preference, write_concern, timeout_ms } =
                    collection.collection_options.clone();
                let inherited = *place.options;
                let options = Box::new(PlaceOptions {
                    read_concern: read_concern.or(inherited.read_concern),
                    read_preference: read_preference.or(inherited.read_preference),
                    write_concern: write_concern.or(inherited.write_concern),
                    timeout_ms: timeout_ms.or(inherited.timeout_ms),
                });
                let place =
                    Place { database: place.database, collection: Some(collection.collection_name.clone()), options };
                self.insert(&collection.id, Live::Place(caller, place))
            }
            Entity::Bucket(bucket) => {
                let live = self.get(&bucket.database)?;
                self.insert(&bucket.id, live)
            }
            Entity::Thread(thread) => self.insert(&thread.id, Live::Thread(Rc::default())),
            Entity::Session(session) => {
                let caller = self.client(&session.client)?;
                let options = transaction::session_options(&session.session_options, |name| self.value(name))?;
                let live = caller.client.start_session(options);
                let live = live.map_err(|failure| Stop::failed(failure.to_string()))?;
                let lsid = E::Client::lsid(&live);
                self.insert(&session.id, Live::Session(caller, Rc::new(RefCell::new(Some(live))), lsid))
            }
        }
    }
}

/// A client of `engine` as `entity` describes it.
///
/// # Errors
/// Its options are none that a client has.
pub async fn connect<E: Engine>(engine: &E, entity: &ClientEntity) -> Result<Caller<E::Client>, Stop> {
    let mut options = options(&engine.uri(entity.use_multiple_mongoses), entity)?;
    options.server_api = entity.server_api.as_ref().map(server_api).transpose()?;
    let journal = Journal::new(entity);
    let client = engine.client(options.clone(), journal.clone()).await;
    let client = client.map_err(|failure| Stop::failed(failure.to_string()))?;
    Ok(Caller { client, options, journal })
}

fn server_api(declared: &ServerApiEntity) -> Result<ServerApi, Stop> {
    if declared.version != ServerApiVersion::V1.as_str() {
        return Err(Stop::Skipped(format!(
            "needs version {} of the Stable API, which does not exist",
            declared.version
        )));
    }
    let mut api = ServerApi::new(ServerApiVersion::V1);
    (api.strict, api.deprecation_errors) = (declared.strict, declared.deprecation_errors);
    Ok(api)
}

fn options(uri: &str, entity: &ClientEntity) -> Result<ClientOptions, Stop> {
    let mut uri = uri.to_owned();
    for (name, value) in &entity.uri_options {
        // Stands for what brings access tokens: a callback, which the engine has.
        if value.get("$$placeholder").is_some() {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // What a test says replaces what the deployment says.
        uri = without(&uri, name);
        let separator = if uri.contains('?') { '&' } else { '?' };
        uri.push_str(&format!("{separator}{name}={value}"));
    }
    if entity.uri_options.get("authMechanism").is_some_and(|mechanism| mechanism == OIDC) {
        uri = without_user(&uri);
    }
    let (options, warnings) = ClientOptions::parse(&uri).map_err(|error| Stop::failed(format!("{uri}: {error}")))?;
    for warning in warnings {
        if let Warning::UnknownOption { name, .. } = warning {
            return Err(Stop::Skipped(format!("needs the option {name}, which does not exist here")));
        }
        if !matches!(warning, Warning::DeprecatedOption { .. }) {
            return Err(Stop::failed(format!("{uri}: {warning}")));
        }
    }
    Ok(options)
}

/// The connection string of a user whom a token names.
fn without_user(uri: &str) -> String {
    match uri.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => uri.to_owned(),
    }
}

fn without(uri: &str, option: &str) -> String {
    let Some((front, options)) = uri.split_once('?') else { return uri.to_owned() };
    let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let kept = options.split('&').filter(|pair| name(pair) != option.to_ascii_lowercase());
    let kept: Vec<&str> = kept.collect();
    if kept.is_empty() { front.to_owned() } else { format!("{front}?{}", kept.join("&")) }
}
