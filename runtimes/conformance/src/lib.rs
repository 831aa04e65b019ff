//! The suite that every adapter has to pass, generic over the runtime.
//!
//! An adapter says in its tests how to run a future, by a [`Harness`], and instantiates the suite by
//! [`conformance!`](crate::conformance!). Each case is then a test of that name. The cases talk to a [`LocalServer`],
//! which is the test server on the case's [`ground`], loopback sockets or a simulation, and misbehaves when told to, or to
//! a `rogue`, which lies. Between the two there may be a `proxy`, and under the client a `lab`: the same runtime, with a
//! clock that can be stepped and sockets that stutter. [`virtual_time`] runs the suite in simulations.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test is told by its name and fails by panicking"
)]

pub mod addresses;
pub mod affinity;
pub mod basics;
pub mod batches;
mod bystanders;
pub mod cancellation;
pub mod change_streams;
pub mod clock_steps;
pub mod closing;
pub mod command_defaults;
pub mod cursor_limits;
pub mod cursors;
pub mod datagrams;
pub mod derivations;
#[cfg(unix)]
pub mod descriptors;
pub mod drops;
pub mod events;
pub mod faults;
pub mod flood;
pub mod giving_up;
pub mod ground;
pub mod handshakes;
pub mod holders;
pub mod hostile;
pub mod identities;
mod lab;
pub mod limits;
pub mod load_balanced;
pub mod logins;
pub mod oidc;
pub mod older_edition;
pub mod own_mechanism;
pub mod phases;
pub mod pools;
pub mod pools_of_a_deployment;
mod proxy;
#[cfg(feature = "trace")]
pub mod recording;
mod recovery;
pub mod refresh;
pub mod resuming;
pub mod retirement;
#[cfg(feature = "reverse")]
pub mod reverse;
mod rogue;
pub mod rotation;
pub mod runtimes;
mod scripted_server;
mod server;
pub mod session_cursors;
pub mod siblings;
pub mod sockets;
pub mod socks;
mod socks_proxy;
pub mod storms;
pub mod storms_of_callers;
mod suite;
pub mod tailing;
pub mod transactions;
pub mod unasked;
pub mod unusable;
pub mod uses;
pub mod virtual_time;
pub mod warming;
mod watch;

use std::any::TypeId;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use cmap_core::ErrorChain;
use cmap_core::address::ServerAddress;
use cmap_core::connection::EstablishError;
use cmap_core::options::ClientOptions;
use cmap_core::pool::CheckOutErrorKind;
use cmap_core::server::{CommandEvent, ServerDescription};

pub use self::server::{Deed, Hosts, LocalServer, Manners, Setup, Whim};
use self::virtual_time::Virtual;
use self::watch::Watch;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{
    Builder, CheckOutError, Client, ClientBuilder, ClientError, CommandError, CommandErrorKind, Connection, Event,
    Notice, Pool, PoolBuilder, Subscription,
};

/// The longest a case may take. The longest ones take some seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// How an adapter's tests run.
pub trait Harness: 'static {
    /// The adapter.
    type Runtime: Runtime;

    /// Whether the runtime ends when [`block_on`](Self::block_on) returns.
    const ENDS: bool;

    /// Runs a case, or runs it often.
    fn test(case: impl Fn()) {
        case();
    }

    /// Whether it has something to add to the clients of cases.
    const PREPARES: bool = false;

    /// Adds what it has to the builder of a client or a pool of these hosts.
    fn prepare<T>(builder: Builder<Self::Runtime, T>, _hosts: &[ServerAddress]) -> Builder<Self::Runtime, T> {
        builder
    }

    /// Runs `future` in a runtime of its own, or in the one there is.
    fn block_on<T>(future: impl Future<Output = T>) -> T;
}

/// Whether a case runs in virtual time, to which the machine adds nothing.
fn is_virtual<H: Harness>() -> bool {
    TypeId::of::<H>() == TypeId::of::<Virtual>()
}

/// A limit within which something has to succeed: longer on sockets, where a busy machine adds to it.
fn roomy<H: Harness>(limit: Duration) -> Duration {
    if is_virtual::<H>() { limit } else { limit * 5 }
}

/// The client of a harness.
pub type ClientOf<H> = Client<<H as Harness>::Runtime>;

/// Runs a case. One that hangs fails by its name.
fn run<H: Harness>(case: impl Future<Output = ()>) {
    bounded::<H, _>(case);
}

/// Runs a part of a case, whose runtime may end before the case does.
fn bounded<H: Harness, T>(part: impl Future<Output = T>) -> T {
    let _watch = Watch::start();
    // Boxed, so that the runtime's executor is compiled once, and not for each case.
    let part: Pin<Box<dyn Future<Output = T> + '_>> = Box::pin(part);
    H::block_on(within::<H, _>(LIMIT, part))
}

/// Runs a case that measures how tasks are served: alone in this process.
fn run_alone<H: Harness>(case: impl Future<Output = ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _watch = Watch::start();
    let case: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(case);
    H::block_on(within::<H, _>(LIMIT, case));
}

/// `work`, which must end within `limit`.
async fn within<H: Harness, T>(limit: Duration, work: impl Future<Output = T>) -> T {
    let runtime = H::Runtime::current().unwrap();
    let end = runtime.now() + limit;
    let mut timer = pin!(runtime.sleep_until(end));
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            // Work that was not woken must not pass because the limit has woken it.
            assert!(runtime.now() < end, "it did not end within {limit:?}");
            return Poll::Ready(output);
        }
        assert!(timer.as_mut().poll(cx).is_pending(), "it did not end within {limit:?}");
        Poll::Pending
    })
    .await
}

/// A client of `server`; `query` are the options of its connection string.
async fn client<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    connect::<H>(&server.uri(query)).await.unwrap()
}

/// A client as a connection string asks for it.
async fn connect<H: Harness>(uri: &str) -> Result<ClientOf<H>, ClientError> {
    if H::PREPARES {
        return builder::<H>(ClientOptions::parse(uri)?.0).build().await;
    }
    Client::connect(uri).await
}

/// A builder of a client with `options`.
fn builder<H: Harness>(options: ClientOptions) -> ClientBuilder<H::Runtime> {
    let hosts = options.hosts.clone();
    H::prepare(Client::builder(options), &hosts)
}

/// A client whose check-outs fail with the server's error, instead of selecting a server anew.
async fn outspoken<H: Harness>(uri: &str) -> ClientOf<H> {
    let (options, _) = ClientOptions::parse(uri).unwrap();
    builder::<H>(options).reselect(false).build().await.unwrap()
}

/// A builder of a pool with `options`.
fn pool_builder<H: Harness>(options: ClientOptions) -> PoolBuilder<H::Runtime> {
    let hosts = options.hosts.clone();
    H::prepare(Pool::builder(options), &hosts)
}

fn options(server: &LocalServer, query: &str) -> ClientOptions {
    ClientOptions::parse(&server.uri(query)).unwrap().0
}

/// Ends after the turn of the other tasks that can run, if the executor takes turns; in virtual time, after a moment.
async fn yield_now() {
    ground::current().pause().await;
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Lets other tasks run until the awaited state is reached, of which no event tells.
async fn until(mut has_come: impl FnMut() -> bool) {
    while !has_come() {
        yield_now().await;
    }
}

/// Reads events until one has `name`.
async fn wait_for(events: &mut Subscription, name: &str) -> Event {
    loop {
        match events.next().await {
            Some(Notice::Event { event, .. }) if event.name() == name => return event,
            Some(Notice::Event { .. }) => {}
            Some(lost) => panic!("{lost:?} before {name}"),
            None => panic!("the events ended before {name}"),
        }
    }
}

/// The events of commands since they were last read, up to a ping that is sent now. Another task may be delivering the events of a call when
/// the call returns; those of the ping come after them.
async fn command_events<R: Runtime>(client: &Client<R>, events: &mut Subscription) -> Vec<Arc<CommandEvent>> {
    client.run(("admin", bson::rawdoc! { "ping": 1 })).await.unwrap();
    let mut read = Vec::new();
    loop {
        match events.next().await {
            Some(Notice::Event { event: Event::Command(event), .. }) => {
                if matches!(&*event, CommandEvent::CommandStarted { sent, .. } if sent.name == "ping") {
                    return read;
                }
                read.push(event);
            }
            Some(Notice::Event { .. }) => {}
            lost => panic!("{lost:?} before the ping"),
        }
    }
}

/// The description of a client's only server.
fn the_server<R: Runtime>(client: &Client<R>) -> Arc<ServerDescription> {
    let description = client.description();
    assert_eq!(description.servers.len(), 1, "{description:?}");
    Arc::clone(&description.servers[0])
}

/// Waits until a check of the server has failed.
async fn wait_for_failed_check<H: Harness>(client: &ClientOf<H>) {
    let mut events = client.subscribe(1000);
    // A description is there before the events that tell of it.
    while the_server(client).error.is_none() {
        assert!(events.next().await.is_some(), "the client has ended");
    }
}

/// Asserts that no connection, waiter or check-out was lost.
fn assert_nothing_lost<R: Runtime>(client: &Client<R>) {
    let stats = client.stats();
    assert_eq!((stats.counts.waiting, stats.counts.in_use), (0, 0), "{stats:?}");
    assert_eq!(stats.check_outs_started, stats.checked_out + stats.check_outs_failed.total(), "{stats:?}");
    assert_eq!(stats.checked_out, stats.checked_in, "{stats:?}");
}

/// Why the requested connection could not be established.
fn establish_error<R: Runtime>(outcome: Result<Connection<R>, CheckOutError>) -> EstablishError {
    match outcome {
        Err(CheckOutError::Pool(error)) => {
            let CheckOutErrorKind::Establish(cause) = &error.kind else { panic!("{error}") };
            (**cause).clone()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it got a connection"),
    }
}

/// An error and all its causes, as a user reads them.
fn told(error: &(dyn Error + 'static)) -> String {
    ErrorChain(error).to_string()
}

/// Whether a command failed because its connection was reset.
fn is_reset(error: &CommandError) -> bool {
    matches!(&error.kind, CommandErrorKind::Network(error) if error.kind() == io::ErrorKind::ConnectionReset)
}
