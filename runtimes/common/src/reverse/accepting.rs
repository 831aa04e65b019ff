//! The task that accepts: strangers who are too many are closed here, before their TLS handshake.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::greeting::Visitor;
use super::shared::Shared;
use crate::runtime::{Listen, Runtime};
use crate::socket::yield_now::yield_now;

/// How long nothing is accepted after the system gave no connection: a lack of descriptors or memory does not pass at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the listener is closed.
pub(super) async fn run<R: Listen>(shared: Arc<Shared<R>>, listener: R::Listener) {
    // The runtime may end first, and drop the task.
    let _end = CloseAtEnd(Arc::clone(&shared));
    loop {
        let accepted = {
            let mut accept = pin!(R::accept(&listener));
            poll_fn(|cx| match shared.poll_closed(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => accept.as_mut().poll(cx).map(Some),
            })
            .await
        };
        match accepted {
            None => return,
            Some(Ok((stream, from))) => {
                take_in(&shared, stream, from);
                // Others have their turn, however fast strangers come.
                yield_now().await;
            }
            Some(Err(error)) => {
                let is_of_one_peer = is_of_one_peer(&error);
                shared.teller.tell_accept_failed(shared.clock.now(), error);
                if is_of_one_peer {
                    yield_now().await;
                } else {
                    shared.clock.sleep_until(shared.clock.now() + PAUSE).await;
                }
            }
        }
    }
}

/// Whether another connection may be accepted at once: this one's peer had reset it before it was accepted or set up. Errors that can
/// be the listening socket's own are not among them: they would come again without end.
fn is_of_one_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

fn take_in<R: Runtime>(shared: &Arc<Shared<R>>, stream: R::Stream, from: SocketAddr) {
    match shared.admit(from) {
        Ok((socket, orders)) => {
            let visitor = Visitor::new(Arc::clone(shared), socket, orders, from);
            shared.clock.runtime().spawn(visitor.attend(stream));
        }
        Err(turned_away) => shared.teller.tell_turned_away(shared.clock.now(), from, turned_away.into()),
    }
}

struct CloseAtEnd<R: Runtime>(Arc<Shared<R>>);

impl<R: Runtime> Drop for CloseAtEnd<R> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_end_with_their_peer_are_without_a_pause() {
        let is_without = |kind: io::ErrorKind| is_of_one_peer(&kind.into());

        assert!(is_without(io::ErrorKind::ConnectionAborted) && is_without(io::ErrorKind::ConnectionReset));
        // What a listening socket says that was shut down, and a process without descriptors.
        assert!(!is_without(io::ErrorKind::InvalidInput) && !is_without(io::ErrorKind::Other));
    }
}
