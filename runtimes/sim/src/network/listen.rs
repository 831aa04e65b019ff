//! Listening, as programs of any runtime do it.

use std::io;
use std::net::SocketAddr;

use cmap_runtime::Listen;

use super::{FIRST_FREE_PORT, Host, Listener, Stream};
use crate::runtime::SimRuntime;

/// A port that a program listens on, until this is dropped.
pub struct Bound(Listener);

impl Listen for SimRuntime {
    type Listener = Bound;

    async fn bind(&self, address: SocketAddr) -> io::Result<Bound> {
        let address = self.at_home(address);
        let is_taken = |host: &Host| host.listeners.contains_key(&address.port());
        if self.world().network().hosts.get(&address.ip()).is_some_and(is_taken) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Bound(self.listen(address)))
    }

    fn local_address(listener: &Bound) -> io::Result<SocketAddr> {
        Ok(listener.0.address())
    }

    async fn accept(listener: &Bound) -> io::Result<(Stream, SocketAddr)> {
        let stream = listener.0.accept().await.ok_or(io::ErrorKind::NotConnected)?;
        let network = listener.0.world.network();
        let connection = network.connections.get(stream.connection()).ok_or(io::ErrorKind::NotConnected)?;
        let from = SocketAddr::new(connection.dialled_from(), FIRST_FREE_PORT);
        drop(network);
        Ok((stream, from))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.close();
    }
}
