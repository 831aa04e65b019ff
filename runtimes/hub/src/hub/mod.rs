//! The hub on tokio: its sockets, its client upstream, its status.
//!
//! | file | content |
//! |---|---|
//! | `listeners`, `proxied`, `tls` | from a listening socket to a client's stream |
//! | `sockets`, `inherited` | sockets that listen: bound anew, or handed over by the hub before, or by systemd |
//! | `connection` | one client's task |
//! | `forward` | one command upstream, with retries |
//! | `turn` | a command's place and its connection |
//! | `gate` | the queue, awaited |
//! | `cleanup` | what a client that has gone leaves behind |
//! | `upstream` | the client, its identities, and whether it has a server that suits |
//! | `changes` | tells those who wait for a server that the servers have changed |
//! | `clock` | the hub's time |
//! | `shared` | what all tasks share |
//! | `stage` | its way to its end, and when clients go |
//! | `reload` | another configuration while it runs |
//! | `error` | why it cannot start, or take over a configuration |
//! | `descriptors` | how many files may be open, and whose |
//! | `purse` | the budget of bytes, awaited |
//! | `packers` | compressors of replies |
//! | `sending` | bytes to a client, which may be slow |
//! | `audit` | who has logged in, has failed to, and has gone |
//! | `log_limit` | how many lines of the log clients can cause |
//! | `track` | where a command is, and for how long |
//! | `histograms` | how long commands take |
//! | `activity` | what runs, and what took long |
//! | `failures` | what has failed, and why |
//! | `history` | what has changed between two looks |
//! | `clients` | the connected clients, whose connections an order or a reload can end |
//! | `control`, `program` | the orders of an operator |
//! | `status` | `/status`, `/metrics`, `/healthz` |

mod activity;
mod audit;
mod changes;
mod cleanup;
mod clients;
mod clock;
mod connection;
#[cfg(unix)]
mod control;
mod descriptors;
mod error;
mod failures;
mod forward;
mod gate;
mod histograms;
mod history;
mod inherited;
mod listeners;
mod log_limit;
mod packers;
mod program;
mod proxied;
mod purse;
mod reload;
mod sending;
mod shared;
mod sockets;
mod stage;
mod status;
mod tls;
mod track;
mod turn;
mod upstream;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;

use cmap_tokio::ReverseListener;
use tokio::task::JoinSet;

pub use self::error::{ReloadError, StartError};
pub use self::inherited::{InheritError, Inherited};
pub use self::reload::Reloaded;
pub use self::tls::CertificateError;
use crate::config::{Config, Listener};
use descriptors::Reserve;
#[cfg(unix)]
use inherited::Predecessor;
use listeners::Listeners;
use reload::{Current, Reloader};
use shared::Shared;
use sockets::Place;
use stage::{Spread, Stage};

/// A hub that runs. Dropping it ends it at once.
#[derive(Debug)]
pub struct Hub {
    shared: Arc<Shared>,
    listeners: Arc<Listeners>,
    /// The tasks of the status and of the control socket, which go on until the hub has ended.
    watching: JoinSet<()>,
    reloader: Arc<Reloader>,
    status: Option<SocketAddr>,
    #[cfg(unix)]
    predecessor: Option<Predecessor>,
}

impl Hub {
    /// Starts a hub. It listens when this returns; whether upstream is there shows later.
    ///
    /// # Errors
    /// It cannot listen, a certificate or the options upstream cannot be used, or the system allows too few open files.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_by(config, Inherited::default()).await
    }

    /// Starts a hub that listens by sockets that are there already, where the configuration has their addresses. If they are those of a hub
    /// that runs, that one drains once [`let_predecessor_go`](Self::let_predecessor_go) is called, or five seconds after this has returned;
    /// if this fails it goes on.
    ///
    /// # Errors
    /// It cannot listen, a certificate or the options upstream cannot be used, or the system allows too few open files. If it follows
    /// another hub: no server upstream takes its credentials, or that hub goes on, or was told to end.
    pub async fn start_by(config: Config, mut inherited: Inherited) -> Result<Self, StartError> {
        let (listen, status, control) = (config.listeners.clone(), config.status, config.control.clone());
        let current = Current::of(&config);
        let shared = Arc::new(Shared::new(config).await?);
        let listeners = Arc::new(Listeners::default());
        #[cfg(unix)]
        if inherited.has_predecessor() {
            shared.upstream.warm_up().await?;
        }
        let clients = listeners.prepare(&listen, &mut inherited).await?;
        let mut watching = JoinSet::new();
        let mut address_of_status = None;
        if let Some(address) = status {
            let socket = listeners.other(Place::Tcp(address), &mut inherited).await?;
            address_of_status = Some(status::serve(&mut watching, address, socket, Arc::clone(&shared))?);
        }
        let reloader = Arc::new(Reloader::new(current, &shared, &listeners));
        if let Some(path) = control {
            let socket = listeners.other(Place::Unix(path.clone()), &mut inherited).await?;
            #[cfg(unix)]
            control::serve(&mut watching, &path, socket, &shared, &listeners, &reloader)?;
            #[cfg(not(unix))]
            drop(socket);
        }
        listeners.open(clients, &shared);
        #[cfg(unix)]
        let predecessor = inherited.confirm().await.map_err(StartError::NotFollowed)?;
        Ok(Self {
            shared,
            listeners,
            watching,
            reloader,
            status: address_of_status,
            #[cfg(unix)]
            predecessor: Some(predecessor),
        })
    }

    /// Lets the hub drain from which this one has taken over, if there is one: it waits five seconds for that. Tell a service manager before which
    /// process is the main one from now on.
    pub fn let_predecessor_go(&mut self) {
        #[cfg(unix)]
        drop(self.predecessor.take());
    }

    /// The TCP addresses where clients come in.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.addresses()
    }

    /// The address of the status.
    pub fn status_address(&self) -> Option<SocketAddr> {
        self.status
    }

    /// The address where agents of servers come in.
    pub fn reverse_address(&self) -> Option<SocketAddr> {
        self.shared.upstream.agents.as_ref().map(ReverseListener::local_address)
    }

    /// Checks what [`start`](Self::start) would find wrong with the files that a configuration names, and starts nothing. Returns what an
    /// operator should know of the system's limits.
    ///
    /// # Errors
    /// A certificate cannot be used, or the system allows too few open files.
    pub async fn check(config: &Config) -> Result<Option<String>, StartError> {
        for listener in &config.listeners {
            if let Listener::Tcp { tls: Some(files), .. } = listener {
                tls::acceptor(files)?;
            }
        }
        if let Some(reverse) = &config.reverse {
            ReverseListener::check(&reverse.options).await?;
        }
        let mut doors = config.limits.doors;
        Ok(Reserve::of(config).fit(&mut doors)?.advice())
    }

    /// Takes over another configuration: all of it that can count while the hub runs. The result names that, and what counts when it is
    /// started again. Connections of users who are not there any more, have other keys, or are somebody else upstream, are ended.
    ///
    /// # Errors
    /// A certificate, a listener, an identity or the hub's own credential upstream cannot be used. Then nothing changes.
    pub async fn reload(&self, config: Config) -> Result<Reloaded, ReloadError> {
        self.reloader.reload(config).await
    }

    /// Reads the file of its configuration again, and takes it over as [`reload`](Self::reload) does.
    ///
    /// # Errors
    /// The file cannot be used, or what it says. Then nothing changes. Nor does it if the future is dropped before it is ready.
    pub async fn read_again(&self) -> Result<Reloaded, ReloadError> {
        self.reloader.read_again().await
    }

    /// Says how the level of the program's log is set, which an operator may ask for at the control socket: by a function that takes a
    /// filter, or says why that is none.
    pub fn on_log_level(&self, set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) {
        self.shared.program.on_log_level(Box::new(set));
    }

    /// Says how a new process is started that takes over from this one, which an operator may ask for at the control socket: by a function that
    /// takes the path of that socket, for [`Inherited::from_hub`].
    pub fn on_upgrade(&self, start: impl Fn(&Path) -> io::Result<Child> + Send + Sync + 'static) {
        self.shared.program.on_upgrade(Box::new(start));
    }

    /// Waits until an operator asks at the control socket for the hub's end, or another process has taken over: then call
    /// [`drain`](Self::drain).
    pub async fn asked_to_end(&self) {
        self.shared.asked_to_end.notified().await;
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Whether another process has taken over.
    pub fn has_successor(&self) -> bool {
        *self.shared.succeeded.borrow()
    }

    /// Ends the hub: it accepts nobody any more, refuses what clients begin, hangs up on those that have nothing open, lets the others
    /// finish for as long as the configuration says or until `hurry` is over, and then ends what they have open. The status is there to the end
    /// unless another process has taken it over. Returns how many it did not wait for.
    pub async fn drain(mut self, hurry: impl Future<Output = ()>) -> usize {
        let patience = self.shared.settings().drain;
        let spread = if self.has_successor() { Spread::of_upgrade(patience) } else { Spread::of_end(patience) };
        self.shared.set_stage(Stage::Draining(spread));
        self.listeners.close();
        if self.has_successor() {
            self.watching.abort_all();
            self.listeners.forget_others();
        }
        // What waits has to have its turn.
        self.shared.gate.resume();
        let in_time = tokio::select! {
            () = self.shared.wait_until_empty() => true,
            () = tokio::time::sleep(patience) => false,
            () = hurry => false,
        };
        let left = if in_time { 0 } else { self.shared.connections() };
        self.shared.set_stage(Stage::Ended);
        // What those leave behind is ended upstream.
        let _ = tokio::time::timeout(cleanup::PATIENCE, self.shared.wait_until_clean()).await;
        self.shared.close_upstream().await;
        left
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.set_stage(Stage::Ended);
        self.listeners.close();
    }
}
