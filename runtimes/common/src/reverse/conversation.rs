//! One socket in its task: bytes in and out, orders, and times.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cmap_core::time::Instant;
use futures_io::{AsyncRead, AsyncWrite};

use super::hand_over::Promise;
use super::orders::{Order, Orders};
use super::shared::{Connected, DialedStream};
use crate::runtime::Runtime;
use crate::socket;
use crate::time::Clock;

/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The number of bytes that are read at once. Messages are shorter, as a rule.
const READ: usize = 256;

/// What happens next.
pub(super) enum Next<S> {
    Order(Order<S>),
    /// The number of bytes that were read.
    Bytes(usize),
    /// It is time.
    Due,
    /// Nobody wants the socket any more.
    Unwanted,
}

pub(super) struct Conversation<R: Runtime> {
    pub(super) stream: DialedStream<R::Stream>,
    clock: Clock<R>,
    orders: Arc<Orders<R::Stream>>,
    /// What is not sent yet.
    unsent: Vec<u8>,
    is_flushed: bool,
    buffer: [u8; READ],
    timer: Option<(Instant, Timer)>,
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<R: Runtime> Conversation<R> {
    pub(super) fn new(stream: DialedStream<R::Stream>, clock: Clock<R>, orders: Arc<Orders<R::Stream>>) -> Self {
        Self { stream, clock, orders, unsent: Vec::new(), is_flushed: true, buffer: [0; READ], timer: None }
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.is_flushed = false;
    }

    /// The first of the bytes that were read.
    pub(super) fn heard(&self, count: usize) -> &[u8] {
        self.buffer.get(..count).unwrap_or_default()
    }

    /// Sends what is to be sent, and waits for what happens next; at the latest until `due`.
    pub(super) async fn next(
        &mut self,
        due: Option<Instant>,
        promise: Option<&Promise<Connected<R::Stream>>>,
    ) -> io::Result<Next<R::Stream>> {
        self.set_timer(due);
        poll_fn(|cx| self.poll_next(cx, promise)).await
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        promise: Option<&Promise<Connected<R::Stream>>>,
    ) -> Poll<io::Result<Next<R::Stream>>> {
        if let Poll::Ready(sent) = self.poll_send(cx) {
            sent?;
        }
        if let Poll::Ready(order) = self.orders.poll_next(cx) {
            return Poll::Ready(Ok(Next::Order(order)));
        }
        if promise.is_some_and(|promise| promise.poll_unwanted(cx).is_ready()) {
            return Poll::Ready(Ok(Next::Unwanted));
        }
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut self.buffer) {
            return Poll::Ready(match read? {
                0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the agent hung up")),
                count => Ok(Next::Bytes(count)),
            });
        }
        match &mut self.timer {
            Some((_, timer)) => timer.as_mut().poll(cx).map(|()| {
                self.timer = None;
                Ok(Next::Due)
            }),
            None => Poll::Pending,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(self.unsent.drain(..count)),
            }
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn set_timer(&mut self, due: Option<Instant>) {
        if self.timer.as_ref().map(|(at, _)| *at) == due {
            return;
        }
        self.timer = due.map(|at| {
            let clock = self.clock.clone();
            (at, Box::pin(async move { clock.sleep_until(at).await }) as Timer)
        });
    }

    /// Sends what is to be sent, and ends TLS. Whether the agent hears it is the agent's business.
    pub(super) async fn end(mut self) {
        let until = self.clock.now() + LAST_WORDS;
        let clock = self.clock.clone();
        let last_words = async {
            let unsent = std::mem::take(&mut self.unsent);
            socket::write_all(&mut self.stream, &unsent).await?;
            poll_fn(|cx| Pin::new(&mut self.stream).poll_close(cx)).await
        };
        let _ = clock.before(Some(until), last_words).await;
    }
}
