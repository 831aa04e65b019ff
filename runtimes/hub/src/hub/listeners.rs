//! Where clients come in: TCP, TLS on it, Unix sockets. A reload opens some, closes others, and gives others another certificate.

use core::fmt;
use core::time::Duration;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ipnet::IpNet;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::connection;
use super::error::NoListener;
use super::inherited::Inherited;
use super::proxied;
use super::shared::{Entrance, Shared};
use super::sockets::{Place, Socket, Spare};
use super::stage::Stage;
use super::tls::{self, Tls};
use crate::config::{Listener, SocketAccess};

/// How long to wait after an accept that failed: the process may have too many open files, which passes.
pub(super) const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// A client that is silent is asked after two minutes whether it is there, and is gone after one more without an answer.
const KEEP_ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(120)).with_interval(Duration::from_secs(20));

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The listeners that are open.
#[derive(Default)]
pub(super) struct Listeners {
    doors: Mutex<Vec<Door>>,
    /// Those of the status and of operators, by which no clients come in.
    others: Mutex<Vec<(Place, Spare)>>,
}

/// Listeners that can be opened.
pub(super) struct Prepared(Vec<New>);

/// An open listener. Dropping it closes it.
struct Door {
    place: Place,
    /// Its address, if it has one.
    address: Option<SocketAddr>,
    terms: Arc<RwLock<Terms>>,
    spare: Spare,
    task: JoinHandle<()>,
}

/// On what terms clients come in from now on.
#[derive(Clone, Default)]
struct Terms {
    /// Does the handshakes; none where clients come in the clear.
    tls: Option<Tls>,
    /// Who alone may connect, with a header that says for whom; nobody where clients connect themselves.
    proxies: Arc<[IpNet]>,
}

/// A listener as it is to be.
struct New {
    place: Place,
    terms: Terms,
    access: SocketAccess,
    /// With a duplicate; `None` if it is open already.
    socket: Option<(Socket, Spare)>,
}

impl Listeners {
    /// Reads certificates, and listens where nobody does yet. What is open stays as it is until [`open`](Self::open).
    /// What listens already is taken from `inherited`.
    pub(super) async fn prepare(
        &self,
        listeners: &[Listener],
        inherited: &mut Inherited,
    ) -> Result<Prepared, NoListener> {
        let mut there: Vec<_> = self.lock().iter().map(|door| door.place.clone()).collect();
        let mut prepared = Vec::new();
        for listener in listeners {
            let (place, terms, access) = match listener {
                Listener::Tcp { address, tls, proxies } => {
                    let tls = tls.as_ref().map(tls::acceptor).transpose()?;
                    let terms = Terms { tls, proxies: proxies.as_slice().into() };
                    (Place::Tcp(*address), terms, SocketAccess::default())
                }
                Listener::Unix { path, access } => (Place::Unix(path.clone()), Terms::default(), *access),
            };
            let socket = match there.iter().position(|other| *other == place) {
                Some(index) => {
                    there.swap_remove(index);
                    None
                }
                None => {
                    let failed = |source| NoListener::Bind { place: place.to_string(), source };
                    let socket = match inherited.take(&place).map_err(failed)? {
                        // Until this hub serves it, it is as the one before has it.
                        Some(socket) => socket,
                        None => {
                            let socket = place.bind().await.map_err(failed)?;
                            place.set_access(access).map_err(failed)?;
                            socket
                        }
                    };
                    let spare = socket.spare().map_err(failed)?;
                    Some((socket, spare))
                }
            };
            prepared.push(New { place, terms, access, socket });
        }
        Ok(Prepared(prepared))
    }

    /// Opens these, and closes all others. A hub that ends opens none any more.
    pub(super) fn open(&self, Prepared(prepared): Prepared, shared: &Arc<Shared>) {
        let mut doors = self.lock();
        if *shared.stage().borrow() != Stage::Open {
            return;
        }
        let mut before = std::mem::take(&mut *doors);
        for New { place, terms, access, socket } in prepared {
            let open = before.iter().position(|door| door.place == place);
            if let Err(error) = place.set_access(access) {
                tracing::error!(target: "cmap::hub", "{place} keeps its mode and its group: {error}");
            }
            match (socket, open) {
                (Some((socket, spare)), _) => doors.push(Door::open(place, terms, socket, spare, shared)),
                (None, Some(index)) => {
                    let door = before.remove(index);
                    let mut now = door.terms.write().unwrap_or_else(PoisonError::into_inner);
                    *now = terms.follow(&now);
                    drop(now);
                    doors.push(door);
                }
                // Those that are there when the others are prepared are there until now.
                (None, None) => {}
            }
        }
    }

    /// Closes all by which clients come in.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    /// Listens for others than clients. The listener can be handed over until they are [forgotten](Self::forget_others).
    pub(super) async fn other(&self, place: Place, inherited: &mut Inherited) -> Result<Socket, NoListener> {
        let failed = |source| NoListener::Bind { place: place.to_string(), source };
        let socket = match inherited.take(&place).map_err(failed)? {
            Some(socket) => socket,
            None => place.bind().await.map_err(failed)?,
        };
        let spare = socket.spare().map_err(failed)?;
        self.others().push((place, spare));
        Ok(socket)
    }

    /// Closes the listeners of the status and of operators in this process: the next one has taken them over.
    pub(super) fn forget_others(&self) {
        self.others().clear();
    }

    /// Duplicates of all sockets, for a hub that takes them over.
    #[cfg(unix)]
    pub(super) fn spares(&self) -> io::Result<Vec<(Place, Spare)>> {
        let doors = self.lock();
        let others = self.others();
        let doors = doors.iter().map(|door| (&door.place, &door.spare));
        let all = doors.chain(others.iter().map(|(place, spare)| (place, spare)));
        all.map(|(place, spare)| Ok((place.clone(), spare.try_clone()?))).collect()
    }

    /// The TCP addresses.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().iter().filter_map(|door| door.address).collect()
    }

    fn others(&self) -> MutexGuard<'_, Vec<(Place, Spare)>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Door>> {
        // Nothing under the lock panics.
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|door| &door.place)).finish()
    }
}

impl Door {
    fn open(place: Place, terms: Terms, socket: Socket, spare: Spare, shared: &Arc<Shared>) -> Self {
        let (terms, shared) = (Arc::new(RwLock::new(terms)), Arc::clone(shared));
        let (address, task) = match socket {
            Socket::Tcp(socket) => {
                (socket.local_addr().ok(), tokio::spawn(accept_tcp(socket, Arc::clone(&terms), shared)))
            }
            #[cfg(unix)]
            Socket::Unix(socket) => (None, tokio::spawn(accept_unix(socket, shared))),
        };
        Self { place, address, terms, spare, task }
    }
}

impl Terms {
    /// These terms in place of those of before.
    fn follow(mut self, before: &Self) -> Self {
        match (&mut self.tls, &before.tls) {
            (Some(tls), Some(before)) => tls.follow(before),
            (None, Some(before)) => before.distrust(),
            (_, None) => {}
        }
        self
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_tcp(socket: TcpListener, terms: Arc<RwLock<Terms>>, shared: Arc<Shared>) {
    loop {
        match socket.accept().await {
            Ok((stream, from)) => {
                let address = from.ip().to_canonical();
                let terms = terms.read().unwrap_or_else(PoisonError::into_inner).clone();
                if !terms.proxies.is_empty() && !terms.proxies.iter().any(|proxy| proxy.contains(&address)) {
                    refuse(&shared, address, &"it is none of proxy-from");
                    continue;
                }
                let Some(entrance) = enter(&shared, address.to_string().into()) else { continue };
                // Without it the client only has a higher latency.
                let _ = stream.set_nodelay(true);
                // Without it a client whose machine is gone keeps its place, and what it has open.
                let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE);
                tokio::spawn(attend(stream, address, terms, Arc::clone(&shared), entrance));
            }
            Err(error) => fail(&error, &shared).await,
        }
    }
}

/// Serves a client, once it is known who it is and TLS is there.
async fn attend(mut stream: TcpStream, from: IpAddr, terms: Terms, shared: Arc<Shared>, mut entrance: Entrance) {
    if !terms.proxies.is_empty() {
        match proxied::client_address(&mut stream).await {
            Ok(None) => {}
            Ok(Some(client)) => {
                // It has the client's place from now on, and not one of the proxy's.
                drop(entrance);
                let Some(own) = enter(&shared, client.to_string().into()) else { return };
                entrance = own;
            }
            Err(error) => return refuse(&shared, from, &error),
        }
    }
    let Some(tls) = terms.tls else { return connection::serve(stream, None, shared, entrance).await };
    let mut stage = shared.stage();
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE, tls.acceptor.accept(stream)) => shaken,
        _ = stage.wait_for(|stage| *stage == Stage::Ended) => return,
    };
    // A failed handshake has told the client why.
    if let Ok(Ok(stream)) = shaken {
        let certificate = tls.certificate(stream.get_ref().1);
        if let Some(certificate) = &certificate {
            shared.clients.note_certificate(entrance.number, certificate);
        }
        connection::serve(stream, certificate, shared, entrance).await;
    }
}

/// Hangs up on whoever has connected without a right to.
fn refuse(shared: &Shared, address: IpAddr, why: &dyn fmt::Display) {
    shared.activity.count_turned_away();
    if let Some(left_out) = shared.log_of_strangers.admit(shared.now()) {
        tracing::info!(target: "cmap::hub", %address, left_out, "turned away: {why}");
    }
}

#[cfg(unix)]
async fn accept_unix(socket: tokio::net::UnixListener, shared: Arc<Shared>) {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                let Some(entrance) = enter(&shared, "unix".into()) else { continue };
                tokio::spawn(connection::serve(stream, None, Arc::clone(&shared), entrance));
            }
            Err(error) => fail(&error, &shared).await,
        }
    }
}

/// One connection too many is hung up on.
fn enter(shared: &Arc<Shared>, address: Arc<str>) -> Option<Entrance> {
    match shared.enter(Arc::clone(&address)) {
        Ok(entrance) => Some(entrance),
        Err(full) => {
            shared.activity.count_turned_away();
            tracing::debug!(target: "cmap::hub", %address, ?full, "turned away: too many connections");
            None
        }
    }
}

async fn fail(error: &io::Error, shared: &Shared) {
    if let Some(left_out) = shared.log_of_strangers.admit(shared.now()) {
        tracing::warn!(target: "cmap::hub", left_out, "a connection was not accepted: {error}");
    }
    tokio::time::sleep(ACCEPT_AGAIN).await;
}
