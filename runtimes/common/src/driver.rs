//! The one task of an endpoint that sleeps: it comes back when the machine says so.
//!
//! It holds the endpoint weakly and ends with it. When its runtime ends first, the task is dropped, and that is how the
//! endpoint learns that its home is gone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use atomic_waker::AtomicWaker;

use crate::clock::Clock;
use crate::endpoint::Endpoint;
use crate::runtime::Runtime;

/// Wakes the driver before its time.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rings: AtomicBool,
    waker: AtomicWaker,
}

struct Driver<R: Runtime> {
    endpoint: Weak<Endpoint<R>>,
    alarm: Arc<Alarm>,
    clock: Clock<R>,
}

/// Starts the driver of `endpoint`.
pub(crate) fn start<R: Runtime>(endpoint: &Arc<Endpoint<R>>, clock: Clock<R>) {
    let driver = Driver { endpoint: Arc::downgrade(endpoint), alarm: endpoint.alarm(), clock: clock.clone() };
    clock.runtime().spawn(driver.run());
}

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rings.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl<R: Runtime> Driver<R> {
    async fn run(self) {
        // Nobody but the caller's handles keeps the endpoint alive.
        while let Some(endpoint) = self.endpoint.upgrade() {
            let next = endpoint.handle_timeout();
            drop(endpoint);
            let mut timer = pin!(async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            });
            poll_fn(|cx| {
                self.alarm.waker.register(cx.waker());
                if self.alarm.rings.swap(false, Ordering::Acquire) {
                    return Poll::Ready(());
                }
                timer.as_mut().poll(cx)
            })
            .await;
        }
    }
}

impl<R: Runtime> Drop for Driver<R> {
    fn drop(&mut self) {
        if let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.handle_runtime_gone();
        }
    }
}
