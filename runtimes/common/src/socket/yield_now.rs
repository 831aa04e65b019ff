//! Lets other tasks run.

use std::future::poll_fn;
use std::task::Poll;

/// Ends after the turn of the other tasks that can run, if the executor takes turns.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
