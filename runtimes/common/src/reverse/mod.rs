//! Connections that the database's side opens: an application listens, and the agents next to its servers dial out to it.
//!
//! A [`ReverseListener`] takes what agents park there, once they have proven for which member they speak; a client that is built with
//! [`reverse`](crate::Builder::reverse) takes its connections from it, and sees no other difference. `docs/reverse.md` has the protocol
//! and the picture.
//!
//! ```
//! use cmap_runtime::ClientOptions;
//! use cmap_runtime::cmap_core::reverse::Token;
//! use cmap_runtime::reverse::{PemSource, ReverseOptions};
//! use cmap_runtime::{Client, Listen, ReverseListener};
//!
//! async fn connect<R: Listen>(secret: &[u8]) -> Result<Client<R>, Box<dyn std::error::Error>> {
//!     let mut options = ReverseOptions::new(PemSource::File("listener.pem".into()));
//!     options.tokens.add(Token::new("rack-7", secret)?, ["db1.example:27017".parse()?, "db2.example:27017".parse()?]);
//!     let listener = ReverseListener::bind("0.0.0.0:7443".parse()?, options).await?;
//!     let (options, _) = ClientOptions::parse("mongodb://db1.example,db2.example/?replicaSet=rs")?;
//!     Ok(Client::builder(options).reverse(listener).build().await?)
//! }
//! ```
//!
//! | file | content |
//! |---|---|
//! | `options`, `error`, `event`, `teller` | the settings of a listener, and what it reports |
//! | `accepting` | the task that accepts |
//! | `greeting`, `conversation` | the task of each socket until it is a connection |
//! | `certificates` | the listener's TLS, and agents' certificates |
//! | `shared`, `orders`, `hand_over` | the lot under its mutex; what the tasks tell each other |
//! | `dial` | the dialer of clients |

mod accepting;
mod certificates;
mod conversation;
mod dial;
mod error;
mod event;
mod greeting;
mod hand_over;
mod options;
mod orders;
mod shared;
mod teller;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use atomic_waker::AtomicWaker;
use cmap_core::address::ServerAddress;
use cmap_core::reverse::IdleTunnels;
use rustls::ServerConfig;

pub use self::error::{BindError, SocketEnded};
pub use self::event::ReverseEvent;
pub use self::options::{PemSource, ReverseOptions};
use self::shared::{Shared, State};
use crate::error::RuntimeGone;
use crate::runtime::{Listen, Runtime};
use crate::time::Clock;

/// Listens for the agents of servers, and parks their sockets until clients want connections.
///
/// Cheap to clone; all clones are one listener. It lives in the runtime that it was made in. It is closed when the last clone is
/// dropped, and the last client that was built with it.
pub struct ReverseListener<R: Runtime> {
    open: Arc<Open<R>>,
}

/// Closes the listener when the last handle is dropped.
struct Open<R: Runtime> {
    shared: Arc<Shared<R>>,
}

impl<R: Runtime> ReverseListener<R> {
    /// Listens at `address`; with port 0 at any that is free.
    ///
    /// # Errors
    /// The options let nobody in, a file cannot be used, the address cannot be listened at, or the caller runs in no runtime.
    pub async fn bind(address: SocketAddr, options: ReverseOptions) -> Result<Self, BindError>
    where
        R: Listen,
    {
        Self::bind_in(R::current()?, address, options).await
    }

    /// Checks the options as [`bind`](Self::bind) does, and does not listen.
    ///
    /// # Errors
    /// As [`bind`](Self::bind), but for the address.
    pub async fn check(options: &ReverseOptions) -> Result<(), BindError> {
        configure(&R::current()?, options).await.map(drop)
    }

    /// As [`bind`](Self::bind), but it lives in `runtime` instead of the caller's.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_in(runtime: R, address: SocketAddr, options: ReverseOptions) -> Result<Self, BindError>
    where
        R: Listen,
    {
        let tls = configure(&runtime, &options).await?;
        let listening = async {
            let listener = runtime.bind(address).await?;
            let address = R::local_address(&listener)?;
            Ok((listener, address))
        };
        let (listener, address) = listening.await.map_err(|source| BindError::Listen { address, source })?;
        let shared = Arc::new(Shared {
            clock: Clock::new(runtime.clone()),
            tls,
            trusts_certificates: options.authorities.is_some(),
            tokens: options.tokens,
            keep_alive: options.keep_alive,
            // More would be refused.
            wanted: options.wanted.min(options.limits.max_parked),
            teller: teller::Teller::new(options.handler),
            address,
            state: Mutex::new(State::new(IdleTunnels::new(options.limits, options.wanted))),
            acceptor: AtomicWaker::new(),
        });
        runtime.spawn(accepting::run(Arc::clone(&shared), listener));
        Ok(Self { open: Arc::new(Open { shared }) })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.open.shared.address
    }

    /// The members that agents have spoken for, and how many sockets are parked for each.
    pub fn members(&self) -> Vec<(ServerAddress, usize)> {
        self.open.shared.members()
    }

    /// How many sockets were accepted whose agents have not proven yet for which member they speak.
    pub fn greeting(&self) -> u32 {
        self.open.shared.greeting()
    }

    /// Ends it: a message tells agents, which dial elsewhere or later; connections stay. Clients establish no more by it.
    pub fn close(&self) {
        self.open.shared.close();
    }
}

/// TLS of a listener, if the options let somebody in.
async fn configure<R: Runtime>(runtime: &R, options: &ReverseOptions) -> Result<Arc<ServerConfig>, BindError> {
    if options.tokens.is_empty() && options.authorities.is_none() {
        return Err(BindError::NobodyIsLetIn);
    }
    let (given, home) = (options.clone(), runtime.clone());
    // Files are read where this blocks no other task.
    let tls = runtime.spawn_blocking(move || certificates::configure(&given, home)).await;
    Ok(tls.ok_or(RuntimeGone)??)
}

impl<R: Runtime> Clone for ReverseListener<R> {
    fn clone(&self) -> Self {
        Self { open: Arc::clone(&self.open) }
    }
}

impl<R: Runtime> Drop for Open<R> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<R: Runtime> fmt::Debug for ReverseListener<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReverseListener")
            .field("local_address", &self.local_address())
            .field("members", &self.members())
            .finish_non_exhaustive()
    }
}
