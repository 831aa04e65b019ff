//! One question to one name server: over UDP, and over TCP as well if the answer was cut, is not to be trusted, or does not come.
//!
//! Some networks let only one of the two through. UDP goes first, because every name server and every network that has names at all
//! has it; TCP need not wait long.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use super::exchange::exchange;
use super::message::QuestionBytes;
use crate::runtime::{Runtime, Target};

/// How long UDP has before TCP is tried, too.
const HEAD_START: Duration = Duration::from_secs(1);

/// The reply of `server`, which has `patience` for it.
pub(super) async fn ask<R: Runtime>(
    runtime: &R,
    server: SocketAddr,
    question: &QuestionBytes,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let begun_at = runtime.now();
    let (udp, tcp) = (pin!(ask_over_udp(runtime, server, question)), pin!(ask_over_tcp(runtime, server, question)));
    let (mut over_udp, mut over_tcp) = (Attempt::new(udp), Attempt::new(tcp));
    let mut head_start = pin!(runtime.sleep_until(begun_at + HEAD_START));
    let mut end = pin!(runtime.sleep_until(begun_at + patience));
    let mut is_tcp_due = false;
    poll_fn(|cx| {
        if let Some(reply) = over_udp.poll(cx) {
            return Poll::Ready(Ok(reply));
        }
        is_tcp_due = is_tcp_due || over_udp.failure.is_some() || head_start.as_mut().poll(cx).is_ready();
        if is_tcp_due && let Some(reply) = over_tcp.poll(cx) {
            return Poll::Ready(Ok(reply));
        }
        let has_failed = over_udp.failure.is_some() && over_tcp.failure.is_some();
        if has_failed || end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(failure(over_udp.failure.take(), over_tcp.failure.take(), patience)));
        }
        Poll::Pending
    })
    .await
}

/// An attempt that has not ended, or has failed.
struct Attempt<'a, F> {
    work: Pin<&'a mut F>,
    failure: Option<io::Error>,
}

impl<'a, F: Future<Output = io::Result<Vec<u8>>>> Attempt<'a, F> {
    fn new(work: Pin<&'a mut F>) -> Self {
        Self { work, failure: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Vec<u8>> {
        if self.failure.is_some() {
            return None;
        }
        match self.work.as_mut().poll(cx) {
            Poll::Ready(Ok(reply)) => Some(reply),
            Poll::Ready(Err(error)) => {
                self.failure = Some(error);
                None
            }
            Poll::Pending => None,
        }
    }
}

async fn ask_over_udp<R: Runtime>(runtime: &R, server: SocketAddr, question: &QuestionBytes) -> io::Result<Vec<u8>> {
    let reply = runtime.exchange_datagram(server, question.datagram.clone()).await?;
    question.check_datagram(&reply)?;
    Ok(reply)
}

async fn ask_over_tcp<R: Runtime>(runtime: &R, server: SocketAddr, question: &QuestionBytes) -> io::Result<Vec<u8>> {
    let mut stream = runtime.connect(Target::Tcp(server)).await?;
    exchange(&mut stream, &question.message).await
}

/// Why neither has worked. One that has not failed has had no answer.
fn failure(over_udp: Option<io::Error>, over_tcp: Option<io::Error>, patience: Duration) -> io::Error {
    let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {patience:?}"));
    let (over_udp, over_tcp) = (over_udp.unwrap_or_else(silent), over_tcp.unwrap_or_else(silent));
    let text = if over_udp.kind() == io::ErrorKind::Unsupported {
        format!("over TCP: {over_tcp}")
    } else {
        format!("over UDP: {over_udp}; over TCP: {over_tcp}")
    };
    io::Error::new(over_tcp.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_went_wrong_over_which_transport() {
        let refused = || Some(io::Error::new(io::ErrorKind::ConnectionRefused, "refused"));
        let unsupported = Some(io::ErrorKind::Unsupported.into());
        let text = |udp, tcp| failure(udp, tcp, Duration::from_secs(5)).to_string();

        assert_eq!(text(None, refused()), "over UDP: no answer within 5s; over TCP: refused");
        assert_eq!(text(refused(), None), "over UDP: refused; over TCP: no answer within 5s");
        assert_eq!(text(unsupported, refused()), "over TCP: refused");
    }
}
