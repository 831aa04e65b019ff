//! One connection's task: bytes from the client to the machine, and bytes from the machine to the client.
//!
//! Reading goes on while a reply is delayed, so that the task notices a client that hangs up. It pauses while more than
//! a certain number of bytes wait to be sent: a client that does not read is not read from either.

use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use cmap_test_server::{MemberId, Peer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use super::shared::Shared;

/// How many bytes are read at once.
const READ: usize = 64 * 1024;
/// How many bytes may wait to be sent before reading pauses.
const MAX_UNSENT: usize = 1 << 20;

/// Why the task woke up.
enum Event {
    Received(usize),
    Sent,
    Flushed,
    Mail,
}

/// Serves the client of a member behind `stream` until it is gone; `peer` is its address.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    member: MemberId,
    peer: Peer,
    shared: &Shared,
) {
    let mail = Arc::new(Notify::new());
    let id = shared.connect(member, peer, Arc::clone(&mail));
    // A client that is gone gets no bytes.
    let _ = exchange(&mut stream, &mail, |sent, received, out| shared.exchange(id, sent, received, out)).await;
    shared.disconnect(id);
    let _ = stream.shutdown().await;
}

/// Moves bytes until either side ends. `call` takes the number of bytes sent and the bytes received, appends the bytes
/// to send, and returns whether those are the last.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    mail: &Notify,
    call: impl Fn(usize, &[u8], &mut VecDeque<Vec<u8>>) -> bool,
) -> io::Result<()> {
    let mut input = vec![0; READ];
    let mut out = Outgoing::default();
    let mut is_over = false;
    let mut notified = pin!(mail.notified());
    while !(is_over && out.is_done()) {
        let event = poll_fn(|cx| {
            if let Poll::Ready(event) = out.poll(stream, cx)? {
                return Poll::Ready(Ok(event));
            }
            if !is_over && out.unsent < MAX_UNSENT {
                let mut buffer = ReadBuf::new(&mut input);
                if Pin::new(&mut *stream).poll_read(cx, &mut buffer)?.is_ready() {
                    return Poll::Ready(Ok(Event::Received(buffer.filled().len())));
                }
            }
            notified.as_mut().poll(cx).map(|()| Ok::<_, io::Error>(Event::Mail))
        });
        let received = match event.await? {
            Event::Received(0) => return Ok(()),
            Event::Received(count) => &input[..count],
            Event::Mail => {
                notified.set(mail.notified());
                &[]
            }
            Event::Sent if out.unsent == 0 && out.is_to_be_reported() => &[],
            Event::Sent | Event::Flushed => continue,
        };
        is_over |= out.refill(|sent, queue| call(sent, received, queue));
    }
    Ok(())
}

/// The bytes to send.
#[derive(Default)]
struct Outgoing {
    queue: VecDeque<Vec<u8>>,
    /// How many bytes of the first piece are sent.
    at: usize,
    /// How many bytes are not sent.
    unsent: usize,
    /// How many bytes were sent without a report to the machine.
    unreported: usize,
    needs_flush: bool,
}

impl Outgoing {
    fn is_done(&self) -> bool {
        self.queue.is_empty() && !self.needs_flush
    }

    /// Whether enough was sent that the machine may wait to hear of it.
    fn is_to_be_reported(&self) -> bool {
        self.unreported >= MAX_UNSENT / 2
    }

    fn refill(&mut self, call: impl FnOnce(usize, &mut VecDeque<Vec<u8>>) -> bool) -> bool {
        let before = self.queue.len();
        let is_over = call(core::mem::take(&mut self.unreported), &mut self.queue);
        self.unsent += self.queue.iter().skip(before).map(Vec::len).sum::<usize>();
        is_over
    }

    /// Sends some of the bytes.
    fn poll<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> io::Result<Poll<Event>> {
        if let Some(first) = self.queue.front() {
            let Poll::Ready(count) = Pin::new(stream).poll_write(cx, &first[self.at..])? else {
                return Ok(Poll::Pending);
            };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.at += count;
            self.unsent -= count;
            self.unreported += count;
            self.needs_flush = true;
            if self.at == first.len() {
                self.queue.pop_front();
                self.at = 0;
            }
            return Ok(Poll::Ready(Event::Sent));
        }
        if self.needs_flush && Pin::new(stream).poll_flush(cx)?.is_ready() {
            self.needs_flush = false;
            return Ok(Poll::Ready(Event::Flushed));
        }
        Ok(Poll::Pending)
    }
}
