//! SRV and TXT records, from the system's name servers; and all names, from those that the user names.
//!
//! Questions go over TCP, which every runtime has already: answers are never cut, and none is forged by somebody who cannot see
//! the question. A round trip more does not matter to a client that asks once, and then once in a minute at most.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | which name server is asked, and for how long |
//! | `message` | questions to bytes, and bytes to answers |
//! | `exchange` | one question and its answer on a stream |
//! | `name_servers` | the system's name servers |
//! | `addresses` | the addresses of a host |

mod addresses;
mod exchange;
mod message;
mod name_servers;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

pub(crate) use self::addresses::addresses;
use self::exchange::exchange;
use self::message::{Kind, answer, question};
use crate::error::RuntimeGone;
use crate::runtime::{Runtime, Target};

/// How long a name server has for an answer, and how often all of them are asked: what `resolv.conf` has by default.
const PATIENCE: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 2;

/// The SRV records of `name`, from the system's name servers.
pub(crate) async fn system_srv<R: Runtime>(runtime: &R, name: String) -> io::Result<Vec<SrvRecord>> {
    srv(runtime, &system_servers(runtime).await?, &name).await
}

/// The TXT records of `name`, from the system's name servers.
pub(crate) async fn system_txt<R: Runtime>(runtime: &R, name: String) -> io::Result<Vec<TxtRecord>> {
    txt(runtime, &system_servers(runtime).await?, &name).await
}

/// The SRV records of `name`, as the first of these name servers to answer has them.
pub(crate) async fn srv<R: Runtime>(runtime: &R, servers: &[SocketAddr], name: &str) -> io::Result<Vec<SrvRecord>> {
    message::srv(&ask(runtime, servers, name, Kind::Srv).await?)
}

/// The TXT records of `name`, as the first of these name servers to answer has them.
pub(crate) async fn txt<R: Runtime>(runtime: &R, servers: &[SocketAddr], name: &str) -> io::Result<Vec<TxtRecord>> {
    message::txt(&ask(runtime, servers, name, Kind::Txt).await?)
}

async fn system_servers<R: Runtime>(runtime: &R) -> io::Result<Vec<SocketAddr>> {
    runtime.spawn_blocking(name_servers::of_system).await.unwrap_or_else(|| Err(io::Error::other(RuntimeGone)))
}

/// The reply of the first server that has an answer. One that fails is followed by the next.
async fn ask<R: Runtime>(runtime: &R, servers: &[SocketAddr], name: &str, kind: Kind) -> io::Result<Vec<u8>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the system names no name server");
    for server in servers.iter().cycle().take(servers.len() * ATTEMPTS) {
        match within(runtime, PATIENCE, ask_one(runtime, *server, name, kind)).await {
            Ok(reply) => return Ok(reply),
            Err(error) => last = io::Error::new(error.kind(), format!("the name server {server}: {error}")),
        }
    }
    Err(last)
}

async fn ask_one<R: Runtime>(runtime: &R, server: SocketAddr, name: &str, kind: Kind) -> io::Result<Vec<u8>> {
    let mut id = [0; 2];
    runtime.fill_random(&mut id)?;
    let id = u16::from_be_bytes(id);
    let question = question(id, name, kind)?;
    let mut stream = runtime.connect(Target::Tcp(server)).await?;
    let reply = exchange(&mut stream, &question).await?;
    answer(id, &reply)?;
    Ok(reply)
}

/// `work`, if it ends within `limit`.
async fn within<R: Runtime, T>(
    runtime: &R,
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let end = runtime.sleep_until(runtime.now() + limit);
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| {
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
        let done = work.as_mut().poll(cx);
        if done.is_ready() { done } else { end.as_mut().poll(cx).map(|()| Err(timed_out())) }
    })
    .await
}
