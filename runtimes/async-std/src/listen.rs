//! Listening on async-std.

use std::io;
use std::net::{SocketAddr, TcpListener};

use async_io::Async;
use cmap_runtime::Listen;
use cmap_runtime::net::{EitherStream, HalfClosing, set_up_accepted_tcp};
use socket2::SockRef;

use crate::AsyncStd;

impl Listen for AsyncStd {
    type Listener = Async<TcpListener>;

    async fn bind(&self, address: SocketAddr) -> io::Result<Async<TcpListener>> {
        Async::<TcpListener>::bind(address)
    }

    fn local_address(listener: &Async<TcpListener>) -> io::Result<SocketAddr> {
        listener.get_ref().local_addr()
    }

    async fn accept(listener: &Async<TcpListener>) -> io::Result<(Self::Stream, SocketAddr)> {
        let (stream, from) = listener.accept().await?;
        set_up_accepted_tcp(SockRef::from(&stream))?;
        Ok((EitherStream::Left(HalfClosing(stream)), from))
    }
}
