//! Listening on tokio.

use std::io;
use std::net::SocketAddr;

use cmap_runtime::Listen;
use cmap_runtime::net::{EitherStream, set_up_accepted_tcp};
use socket2::SockRef;
use tokio::net::TcpListener;

use crate::{Tokio, TokioStream};

impl Listen for Tokio {
    type Listener = TcpListener;

    async fn bind(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let _context = self.0.enter();
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }

    fn local_address(listener: &TcpListener) -> io::Result<SocketAddr> {
        listener.local_addr()
    }

    async fn accept(listener: &TcpListener) -> io::Result<(Self::Stream, SocketAddr)> {
        let (stream, from) = listener.accept().await?;
        set_up_accepted_tcp(SockRef::from(&stream))?;
        Ok((EitherStream::Left(TokioStream(stream)), from))
    }
}
