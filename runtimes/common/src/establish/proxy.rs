//! Through a SOCKS5 proxy to a server: the proxy's name is resolved here, the server's by the proxy (SOCKS-3).

use std::io;

use cmap_core::connection::{EstablishError, Fault, Phase, Socks};
use cmap_core::time::Instant;
use futures_io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

use super::Establisher;
use super::resolve::{NamedBy, resolve};
use crate::names::host::race;
use crate::runtime::Runtime;
use crate::socket;
use crate::socket::read_budget::BudgetedStream;
use crate::socket::transport::Transport;

impl<R: Runtime> Establisher<R> {
    /// A stream through the proxy to the server, before `until`.
    pub(super) async fn connect_through(
        &self,
        mut socks: Socks,
        until: Option<Instant>,
    ) -> Result<Transport<R::Stream>, EstablishError> {
        let mut stream = self.connect_to_proxy(&socks, until).await?;
        let greeted = self.settings.clock.before(until, greet(&mut socks, &mut stream)).await;
        match greeted {
            Some(outcome) => outcome.map(|()| Transport::Clear(BudgetedStream::new::<R>(stream))),
            None => Err(socks.failed(Fault::Timeout, "no answer within connectTimeoutMS, which may allow more")),
        }
    }

    /// A stream to the proxy itself, before `until`.
    async fn connect_to_proxy(&self, socks: &Socks, until: Option<Instant>) -> Result<R::Stream, EstablishError> {
        let (clock, runtime) = (&self.settings.clock, self.settings.clock.runtime());
        let resolving = resolve(runtime, &self.settings.names, socks.proxy(), NamedBy::User);
        let found = clock.before(until, resolving).await;
        let unreachable = |fault, text: &str| {
            EstablishError::new(Phase::Proxy, fault, format!("{} cannot be reached: {text}", socks.proxy()))
        };
        let late = || unreachable(Fault::Timeout, "its name was not resolved within connectTimeoutMS");
        let targets = found.ok_or_else(late)?.map_err(|error| unreachable(Fault::Network, &error.message))?;
        let connected = race(clock, &self.last_address, targets, until, |target| runtime.connect(target));
        connected.await.map_err(|error| {
            let fault = if error.ran_out_of_time() { Fault::Timeout } else { Fault::Network };
            unreachable(fault, &error.text("no answer within connectTimeoutMS"))
        })
    }
}

/// Talks with the proxy at the other end of `stream`, until that leads to the server.
async fn greet(socks: &mut Socks, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), EstablishError> {
    let mut buffer = Zeroizing::new(Vec::new());
    while !socks.is_connected() {
        buffer.clear();
        socks.write_to(&mut buffer);
        socket::write_all(stream, &buffer).await.map_err(|error| lost(socks, &error))?;
        buffer.resize(socks.wanted(), 0);
        let count = socket::read(stream, &mut buffer).await.map_err(|error| lost(socks, &error))?;
        socks.handle_bytes(buffer.get(..count).unwrap_or_default())?;
    }
    Ok(())
}

fn lost(socks: &Socks, error: &io::Error) -> EstablishError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        socks.failed(Fault::Network, "it hung up; check that a SOCKS5 proxy listens there")
    } else {
        socks.failed(Fault::Network, error)
    }
}
