//! The one task of a server that sleeps: it comes back when the machine or its monitor says so.
//!
//! It holds the server weakly and ends with it. When its runtime ends first, the task is dropped, and that tells the
//! server that its home is gone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use atomic_waker::AtomicWaker;

use super::Server;
use crate::clock::Clock;
use crate::establish::Requester;
use crate::runtime::Runtime;

/// Wakes the driver before its time.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rings: AtomicBool,
    waker: AtomicWaker,
}

struct Driver<R: Runtime> {
    server: Weak<Server<R>>,
    alarm: Arc<Alarm>,
    clock: Clock<R>,
}

/// Starts the driver of `server`.
pub(super) fn start<R: Runtime>(server: &Arc<Server<R>>, clock: Clock<R>) {
    let driver = Driver { server: Arc::downgrade(server), alarm: server.alarm(), clock: clock.clone() };
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
        // Only the caller's handles keep the server alive.
        while let Some(server) = self.server.upgrade() {
            let next = server.handle_timeout();
            drop(server);
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
        if let Some(server) = self.server.upgrade() {
            server.handle_runtime_gone();
        }
    }
}
