//! From an accepted socket to a stream of plain bytes: where TLS comes in.

use cmap_test_server::{MemberId, Peer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::shared::Shared;
use super::{connection, tls};

/// What happens to a socket before its bytes are plain.
pub(super) enum Acceptor {
    /// Nothing.
    Plain,
    /// The server's side of a TLS handshake.
    Tls(TlsAcceptor),
}

impl Acceptor {
    /// Serves the client of a member behind `socket` until it is gone; `peer` is its address.
    pub(super) async fn serve(&self, socket: TcpStream, member: MemberId, mut peer: Peer, shared: &Shared) {
        match self {
            Self::Plain => connection::serve(socket, member, peer, shared).await,
            Self::Tls(acceptor) => {
                // A failed handshake has told the client why; no one else needs to know.
                let Ok(stream) = acceptor.accept(socket).await else { return };
                if let Some(subject) = tls::client_subject(stream.get_ref().1) {
                    peer = peer.with_certificate(subject);
                }
                connection::serve(stream, member, peer, shared).await;
            }
        }
    }
}
