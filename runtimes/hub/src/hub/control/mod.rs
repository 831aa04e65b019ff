//! The control socket: an operator on this machine writes a line, and gets a line of JSON.
//!
//! | file | content |
//! |---|---|
//! | `order` | what a line asks for |
//! | `upgrade` | a new process in this one's place |
//!
//! The socket's file has the mode 0600, and only the hub's own user and root may connect: orders end connections and show users' names. Each
//! order is logged. The socket is there until the hub has ended.

mod order;
mod upgrade;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cmap_core::ErrorChain;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use super::audit;
use super::clients::ConnectedClient;
use super::error::StartError;
use super::listeners::{self, Listeners};
use super::reload::Reloader;
use super::shared::Shared;
use super::sockets::Socket;
use super::status::Report;
use crate::protocol::Ending;
use order::{Order, Whom};

/// How long a line may be.
const LONGEST: u64 = 4 * 1024;

/// The mode of the socket's file.
const MODE: u32 = 0o600;

/// How many operators may be connected at once.
const MOST: usize = 16;

/// Takes orders at a socket, in a task of `tasks`.
pub(super) fn serve(
    tasks: &mut JoinSet<()>,
    path: &Path,
    socket: Socket,
    shared: &Arc<Shared>,
    listeners: &Arc<Listeners>,
    reloader: &Arc<Reloader>,
) -> Result<(), StartError> {
    let failed = |source| StartError::Listen { place: path.display().to_string(), source };
    let Socket::Unix(socket) = socket else { return Err(failed(io::ErrorKind::InvalidInput.into())) };
    // One that systemd has opened may be another user's, and as it has to be.
    if std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777 != MODE {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).map_err(failed)?;
    }
    let operator = Operator {
        path: path.into(),
        shared: Arc::clone(shared),
        listeners: Arc::clone(listeners),
        reloader: Arc::clone(reloader),
        handing_over: Arc::default(),
    };
    tasks.spawn(accept(socket, operator));
    Ok(())
}

async fn accept(socket: UnixListener, operator: Operator) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok((stream, _)) = socket.accept().await else {
            tokio::time::sleep(listeners::ACCEPT_AGAIN).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let operator = operator.clone();
        tokio::spawn(async move {
            // An operator who has gone does not wait for an answer.
            let _ = operator.attend(stream).await;
            drop(place);
        });
    }
}

/// What orders are carried out with.
#[derive(Clone)]
struct Operator {
    /// The control socket.
    path: PathBuf,
    shared: Arc<Shared>,
    listeners: Arc<Listeners>,
    reloader: Arc<Reloader>,
    /// Locked while a new process takes over.
    handing_over: Arc<Mutex<()>>,
}

impl Operator {
    async fn attend(&self, mut stream: UnixStream) -> io::Result<()> {
        let peer = stream.peer_cred()?;
        let (uid, pid) = (peer.uid(), peer.pid());
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            tracing::warn!(target: audit::TARGET, uid, pid, "another user has come to the control socket, and was hung up on");
            return Ok(());
        }
        let (read, mut write) = stream.split();
        let mut read = BufReader::new(read);
        loop {
            let mut line = Vec::new();
            (&mut read).take(LONGEST).read_until(b'\n', &mut line).await?;
            if line.is_empty() {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&line);
            tracing::info!(target: audit::TARGET, uid, pid, order = ?line.trim(), "control");
            // The hub does not end before its operator has the answer.
            let _answering = self.shared.begin_clean_up();
            let order = line.parse::<Order>();
            let answer = match &order {
                Ok(Order::HandOver) => self.hand_over(write.as_ref(), &mut read).await,
                Ok(order) => self.carry_out(order).await,
                Err(error) => Err(format!("{error}")),
            };
            let is_followed = answer.is_ok() && order == Ok(Order::HandOver);
            let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
            let written = write.write_all(format!("{answer}\n").as_bytes()).await;
            if is_followed {
                self.follow(&mut read).await;
            }
            written?;
        }
    }

    /// The answer, or what has gone wrong.
    async fn carry_out(&self, order: &Order) -> Result<Value, String> {
        let shared = &self.shared;
        let written = |report: serde_json::Result<Value>| report.map_err(|error| error.to_string());
        match order {
            Order::Status => written(serde_json::to_value(Report::take(shared))),
            Order::Users => written(serde_json::to_value(Report::take(shared).users)),
            Order::Pause(patience) => match shared.gate.pause(*patience).await {
                0 => Ok(json!({ "paused": true })),
                running => Err(format!(
                    "{running} commands still run after {patience:?}; the hub stays paused: see `status` for what runs, and `resume` to go on"
                )),
            },
            Order::Resume => {
                shared.gate.resume();
                Ok(json!({ "paused": false }))
            }
            Order::Drain => {
                shared.asked_to_end.notify_one();
                Ok(json!({ "draining": true, "connections": shared.connections() }))
            }
            Order::Kick(whom) => {
                Ok(json!({ "kicked": shared.clients.end(&Ending::Kicked, |number, client| whom.is(number, client)) }))
            }
            Order::Upgrade => self.upgrade().await,
            Order::HandOver => Err("only a new process can ask for that".into()),
            Order::Reload => match self.reloader.read_again().await {
                Ok(reloaded) => written(serde_json::to_value(reloaded)),
                Err(error) => Err(format!("the old configuration stays: {}", ErrorChain(&error))),
            },
            Order::LogLevel(filter) => {
                shared.program.set_log_level(filter)?;
                Ok(json!({ "log-level": filter }))
            }
        }
    }
}

impl Whom {
    fn is(&self, number: i64, client: &ConnectedClient) -> bool {
        match self {
            Self::User(name) => client.user.as_deref() == Some(name),
            Self::Address(address) => *client.address == **address,
            Self::Connection(meant) => number == *meant,
        }
    }
}
