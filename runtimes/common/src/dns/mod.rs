//! SRV and TXT records, from the system's name servers; and all names, from those that the user names.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | which name server is asked, and for how long |
//! | `message` | questions to bytes, and bytes to answers |
//! | `transport` | one question to one name server, over UDP and TCP |
//! | `exchange` | one question and its answer on a stream |
//! | `name_servers` | the system's name servers |
//! | `addresses` | the addresses of a host |

mod addresses;
mod exchange;
mod message;
mod name_servers;
mod transport;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

pub(crate) use self::addresses::addresses;
use self::message::{Kind, QuestionBytes};
use crate::error::RuntimeGone;
use crate::runtime::Runtime;

/// How long a name server has for an answer: so short that the third of them is asked within the default of connectTimeoutMS.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often all of them are asked, as `resolv.conf` has it by default.
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
        match ask_one(runtime, *server, name, kind).await {
            Ok(reply) => return Ok(reply),
            Err(error) => last = io::Error::new(error.kind(), format!("the name server {server}: {error}")),
        }
    }
    Err(last)
}

async fn ask_one<R: Runtime>(runtime: &R, server: SocketAddr, name: &str, kind: Kind) -> io::Result<Vec<u8>> {
    let mut id = [0; 2];
    runtime.fill_random(&mut id)?;
    let question = QuestionBytes::new(u16::from_be_bytes(id), name, kind)?;
    let reply = transport::ask(runtime, server, &question, PATIENCE).await?;
    question.check(&reply)?;
    Ok(reply)
}
