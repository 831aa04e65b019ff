//! One end of a connection, for those who read and write.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_io::{AsyncRead, AsyncWrite};

use super::connection::{Arrived, Wake};
use crate::executor::TimerKey;
use crate::world::World;

/// A virtual socket. Dropping it closes it.
pub struct Stream {
    world: Arc<World>,
    connection: usize,
    /// Which of the two ends this is.
    side: usize,
    /// Wakes the reader when bytes arrive.
    arrival: Option<TimerKey>,
}

impl Stream {
    pub(super) fn new(world: Arc<World>, connection: usize, side: usize) -> Self {
        Self { world, connection, side, arrival: None }
    }

    /// The connection's place in the network.
    pub(crate) fn connection(&self) -> usize {
        self.connection
    }

    /// Breaks the connection: both ends read a reset.
    pub fn reset(&self) {
        let wakers = self.world.network().reset(self.world.executor.now(), self.connection);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Reads what has arrived, without waiting.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.receive(buffer)? {
            Arrived::Bytes(count) => Ok(count),
            Arrived::At(_) | Arrived::Nothing => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Arrived> {
        let now = self.world.executor.now();
        let received = self.world.network().receive(now, self.connection, self.side, buffer);
        let (arrived, writer) = received?;
        writer.into_iter().for_each(Waker::wake);
        Ok(arrived)
    }

    fn wake(&self, wake: impl IntoIterator<Item = Wake>) {
        let now = self.world.executor.now();
        for (at, waker) in wake {
            if at <= now {
                waker.wake();
            } else {
                self.world.executor.add_timer(at, waker);
            }
        }
    }

    fn forget_arrival(&mut self) {
        self.arrival.take().into_iter().for_each(|timer| self.world.executor.remove_timer(timer));
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.forget_arrival();
        match self.receive(buffer)? {
            Arrived::Bytes(count) => return Poll::Ready(Ok(count)),
            Arrived::At(at) => self.arrival = Some(self.world.executor.add_timer(at, cx.waker().clone())),
            Arrived::Nothing => {}
        }
        // Faults come before what is on its way.
        self.world.network().await_incoming(self.connection, self.side, cx.waker());
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let now = self.world.executor.now();
        let sent = self.world.network().send(now, self.connection, self.side, bytes, cx.waker());
        let (count, wake) = sent?;
        self.wake(wake);
        if count == 0 { Poll::Pending } else { Poll::Ready(Ok(count)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wake = self.world.network().finish(self.world.executor.now(), self.connection, self.side);
        self.wake(wake);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.forget_arrival();
        let wake = self.world.network().leave(self.world.executor.now(), self.connection, self.side);
        self.wake(wake);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("connection", &self.connection).finish_non_exhaustive()
    }
}
