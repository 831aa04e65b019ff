//! Futures that are dropped before their end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use cmap_sim::Runtime;
use cmap_sim::SimRuntime;

/// `work`, dropped after `patience`.
pub(crate) async fn within<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    let runtime = SimRuntime::current().unwrap();
    let (mut work, mut timer) = (pin!(work), pin!(runtime.sleep(patience)));
    poll_fn(|cx| match timer.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}

/// `work`, dropped when it is to be polled once more.
pub(crate) async fn within_polls<T>(polls: u64, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|cx| match left.checked_sub(1) {
        None => Poll::Ready(None),
        Some(rest) => {
            left = rest;
            work.as_mut().poll(cx).map(Some)
        }
    })
    .await
}
