//! The listening sockets: one for each member that is up.
//!
//! A member that is killed listens no more, so that its clients are refused as they are by a machine without a server. When
//! it is started again, or a member is added, there is another socket at its host.

use core::convert::Infallible;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use cmap_test_server::{DeploymentOutput, MemberId, Peer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::acceptor::Acceptor;
use super::shared::Shared;

/// How long to wait before another try: to accept a connection, and to listen.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);
const LISTEN_AGAIN: Duration = Duration::from_millis(100);

/// Listens for all members, and as the deployment says. Never ends.
pub(super) async fn listen(
    listeners: Vec<(MemberId, TcpListener)>,
    mut instructions: UnboundedReceiver<DeploymentOutput>,
    shared: Arc<Shared>,
    acceptor: Arc<Acceptor>,
) {
    // They end with this.
    let mut tasks = JoinSet::new();
    let mut open = BTreeMap::new();
    for (member, listener) in listeners {
        open.insert(member, tasks.spawn(accept(listener, member, Arc::clone(&shared), Arc::clone(&acceptor))));
    }
    while let Some(instruction) = instructions.recv().await {
        match instruction {
            DeploymentOutput::Listen { member, host } => {
                let (shared, acceptor) = (Arc::clone(&shared), Arc::clone(&acceptor));
                open.insert(
                    member,
                    tasks.spawn(async move { accept(bind(&host).await, member, shared, acceptor).await }),
                );
            }
            DeploymentOutput::StopListening { member } => {
                if let Some(task) = open.remove(&member) {
                    task.abort();
                }
            }
            DeploymentOutput::Server { .. } | _ => {}
        }
    }
    // Instructions end with the deployment, which `shared` has.
    core::future::pending::<()>().await;
}

/// Accepts connections to a member.
pub(super) async fn accept(
    listener: TcpListener,
    member: MemberId,
    shared: Arc<Shared>,
    acceptor: Arc<Acceptor>,
) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                tokio::spawn(serve_client(socket, member, from, Arc::clone(&shared), Arc::clone(&acceptor)));
            }
            // The client is gone already, or the process has too many open files, which passes.
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// Listens at a host. One that another program has taken meanwhile is tried again until it is free.
async fn bind(host: &str) -> TcpListener {
    loop {
        match TcpListener::bind(host).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(LISTEN_AGAIN).await,
        }
    }
}

async fn serve_client(
    socket: TcpStream,
    member: MemberId,
    from: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Arc<Acceptor>,
) {
    // Without it the client only has a higher latency.
    let _ = socket.set_nodelay(true);
    acceptor.serve(socket, member, Peer::at(from.to_string()), &shared).await;
}
