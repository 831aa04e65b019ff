//! The sockets of the monitor: a task of its own opens, reads and writes each of them, until the monitor closes it.
//!
//! The core decides the contents of messages ([`cmap_core::monitor`]), and keeps time: a socket has no limits of its
//! own here.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};

use cmap_core::ErrorChain;
use cmap_core::connection::{Fault, Phase};
use cmap_core::monitor::{self, Monitor};
use cmap_core::pool::Cause;
use cmap_core::time::Instant;
use cmap_core::wire::HEADER_LEN;
use futures_io::{AsyncRead, AsyncWrite};

use super::Driver;
use super::member::Member;
use crate::establish::lost;
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, AtomicWaker, Mutex, PoisonError, Weak};
use crate::socket;
use crate::socket::abort::{Abort, AbortReason};

/// The state of a monitor's socket that its task shares.
#[derive(Debug, Default)]
pub(crate) struct MonitorSocket {
    abort: Abort,
    outgoing: Mutex<Vec<u8>>,
    writer: AtomicWaker,
}

/// The number of bytes read at once. A reply is seldom longer, and a flood of replies is read in small portions, so
/// that the task yields often.
const READ: usize = 1024;

/// The next step of its task.
enum Next {
    Send(Vec<u8>),
    Take(usize),
}

impl MonitorSocket {
    /// Sends `bytes`, once the socket is open. Returns the task to wake.
    pub(crate) fn send(&self, bytes: &[u8]) -> Option<Waker> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        self.writer.take()
    }

    /// Ends it. Returns the task to wake.
    pub(crate) fn close(&self) -> Option<Waker> {
        self.abort.abort(AbortReason::Closed)
    }

    /// Opens `socket` in a task of its own, and serves it.
    pub(crate) fn begin<R: Runtime>(
        self: Arc<Self>,
        driver: Weak<Driver<R>>,
        member: Arc<Member<R>>,
        socket: monitor::Socket,
    ) {
        let runtime = member.establisher.settings.clock.runtime().clone();
        runtime.spawn(async move {
            let served = self.abort.during(self.serve(&driver, &member, socket)).await;
            // A socket that was closed meanwhile is dropped.
            if let Ok((fault, cause)) = served {
                tell(&driver, &member, |monitor, now| monitor.handle_failed(now, socket, fault, cause));
            }
        });
    }

    /// Ends with an error only.
    async fn serve<R: Runtime>(
        &self,
        driver: &Weak<Driver<R>>,
        member: &Arc<Member<R>>,
        socket: monitor::Socket,
    ) -> (Fault, Cause) {
        let establisher = &member.establisher;
        let mut stream = match establisher.open().await {
            Ok(stream) => stream,
            Err(error) => return (error.fault, Cause::of(&error)),
        };
        tell(driver, member, |monitor, now| monitor.handle_connected(now, socket));
        let mut buffer = [0; READ];
        let mut received = 0;
        loop {
            let done = match self.next(&mut stream, &mut buffer).await {
                Ok(Next::Send(bytes)) => socket::write_all(&mut stream, &bytes).await,
                Ok(Next::Take(count)) => {
                    received += count;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    tell(driver, member, |monitor, now| monitor.handle_bytes(now, socket, bytes));
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                let fault = lost(Phase::Hello, &error, "").fault;
                // Less than a message's header is no answer: a part of an alert of TLS, perhaps.
                let advice = if received < HEADER_LEN { establisher.advice_before_hello() } else { "" };
                return (fault, Cause::new(&format!("{}{advice}", ErrorChain(&error))));
            }
        }
    }

    /// Waits for bytes to send, or for bytes that came.
    async fn next(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        buffer: &mut [u8],
    ) -> std::io::Result<Next> {
        poll_fn(|cx| {
            self.writer.register(cx.waker());
            let outgoing = std::mem::take(&mut *self.outgoing.lock().unwrap_or_else(PoisonError::into_inner));
            if !outgoing.is_empty() {
                return Poll::Ready(Ok(Next::Send(outgoing)));
            }
            Pin::new(&mut *stream).poll_read(cx, buffer).map(|read| match read? {
                0 => Err(socket::hung_up()),
                count => Ok(Next::Take(count)),
            })
        })
        .await
    }
}

/// Something happened at one of a monitor's sockets.
fn tell<R: Runtime>(driver: &Weak<Driver<R>>, member: &Arc<Member<R>>, call: impl FnOnce(&mut Monitor, Instant)) {
    if let Some(driver) = driver.upgrade() {
        member.drive(&driver, call);
    }
}
