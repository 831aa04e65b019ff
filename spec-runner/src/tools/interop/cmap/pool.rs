//! Connections shared by threads: the core's pool under a lock, driven by its callers.
//!
//! Nothing here depends on time: maintenance is off and no check-out has a deadline, so no thread need wait for one.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use cmap_core::connection::EstablishError;
use cmap_core::options::{ClientOptions, Maintenance};
use cmap_core::pool::{
    Action, CheckOutError, CheckOutId, CheckOutRequest, Condition, Delivery, Handle, Output, Pool, Reaction,
};
use cmap_core::time::Instant;

use super::client::{Client, ClientError};
use super::expect::Mismatch;

/// A pool of connections to one server.
#[derive(Debug)]
pub(super) struct SharedPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    uri: String,
    state: Mutex<State>,
    delivered: Condvar,
}

#[derive(Debug)]
struct State {
    pool: Pool<Client>,
    deliveries: BTreeMap<CheckOutId, Result<(Handle, Client), Arc<CheckOutError>>>,
    events: Vec<&'static str>,
}

impl SharedPool {
    /// A ready pool for the first server of a connection string.
    pub(super) fn new(uri: &str) -> Result<Self, Mismatch> {
        let (options, _warnings) = ClientOptions::parse(uri).map_err(ClientError::from)?;
        let mut pool_options = options.pool;
        pool_options.maintenance = Some(Maintenance::Off);
        pool_options.check_after_idle = Some(core::time::Duration::MAX);
        let address = options.hosts.into_iter().next().ok_or_else(|| Mismatch::Other("no host".into()))?;
        let pool =
            Pool::new(address, pool_options, Instant::ORIGIN).map_err(|error| Mismatch::Other(error.to_string()))?;
        let state = Mutex::new(State { pool, deliveries: BTreeMap::new(), events: Vec::new() });
        let shared = Arc::new(Shared { uri: uri.to_owned(), state, delivered: Condvar::new() });
        shared.call(|pool| pool.ready(Instant::ORIGIN));
        Ok(Self(shared))
    }

    /// Lends a connection to `work`.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, Mismatch> {
        let (check_out, delivery) = self.0.call(|pool| pool.check_out(Instant::ORIGIN, CheckOutRequest::default()));
        self.0.deliver(delivery);
        let delivery = {
            let no_delivery = |state: &mut State| !state.deliveries.contains_key(&check_out);
            let waited = self.0.delivered.wait_while(self.0.lock(), no_delivery);
            waited.unwrap_or_else(PoisonError::into_inner).deliveries.remove(&check_out)
        };
        let (handle, mut client) = match delivery {
            Some(Ok(delivered)) => delivered,
            Some(Err(error)) => return Err(Mismatch::Other(error.to_string())),
            None => return Err(Mismatch::Other("the pool delivered nothing".into())),
        };
        let result = work(&mut client);
        let condition = if result.is_ok() { Condition::Usable } else { Condition::Errored };
        let check_in = |pool: &mut Pool<Client>| {
            let checked_in = pool.check_in(Instant::ORIGIN, check_out, handle, client, condition);
            checked_in.map_err(|refused| refused.misuse)
        };
        let checked_in = self.0.call(check_in).map_err(|misuse| Mismatch::Other(misuse.to_string()))?;
        self.0.deliver(checked_in.delivery());
        Ok(result?)
    }

    /// The names of the events so far.
    pub(super) fn events(&self) -> Vec<&'static str> {
        self.0.lock().events.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, then carries out the actions that follow: the driving rule.
    fn call<T>(self: &Arc<Self>, call: impl FnOnce(&mut Pool<Client>) -> T) -> T {
        let mut state = self.lock();
        let answer = call(&mut state.pool);
        while let Some(output) = state.pool.poll_output() {
            match output {
                Output::Action(Action::Connect { connection }) => {
                    let shared = Arc::clone(self);
                    thread::spawn(move || shared.establish(connection));
                }
                Output::Action(Action::Deliver { check_out, connection, socket }) => {
                    state.deliveries.insert(check_out, Ok((connection, socket)));
                    self.delivered.notify_all();
                }
                Output::Action(Action::Fail { check_out, error }) => {
                    state.deliveries.insert(check_out, Err(error));
                    self.delivered.notify_all();
                }
                // A socket that is dropped is closed.
                Output::Action(Action::Close { .. }) => {}
                // Never asked for: idle connections are not checked, and this pool is never cleared.
                Output::Action(
                    Action::Check { .. } | Action::Refresh { .. } | Action::Interrupt { .. } | Action::WarmedUp { .. },
                ) => {}
                Output::Event(event) => state.events.push(event.name()),
            }
        }
        answer
    }

    /// A call was answered with a connection at once.
    fn deliver(&self, delivery: Option<Delivery<Client>>) {
        if let Some(Delivery { check_out, connection, socket }) = delivery {
            self.lock().deliveries.insert(check_out, Ok((connection, socket)));
            self.delivered.notify_all();
        }
    }

    fn establish(self: &Arc<Self>, connection: Handle) {
        let established = Client::connect(&self.uri).map_err(ClientError::into_establish_error);
        // A pool that no longer wants the connection drops it.
        let _ = self.call(|pool| match established {
            Ok(client) => pool.handle_established(Instant::ORIGIN, connection, client).map_err(drop),
            Err(error) => failed(pool, connection, error),
        });
    }
}

fn failed(pool: &mut Pool<Client>, connection: Handle, error: EstablishError) -> Result<(), ()> {
    pool.handle_establish_failed(Instant::ORIGIN, connection, error, Reaction::KeepPool).map_err(drop)
}
