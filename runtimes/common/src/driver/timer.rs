//! The one task of a client that sleeps: it comes back when the machine or a monitor says so.
//!
//! Whenever it wakes it sees whether the machine was suspended meanwhile. If it wakes late, because the executor stood still, it gives
//! way to the tasks of sockets first: what they can read has come in time. It holds the driver weakly and ends with it. When its
//! runtime ends first, the task is dropped, and that tells the driver that its home is gone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::Driver;
use super::suspension::Suspension;
use crate::establish::Requester;
use crate::runtime::Runtime;
use crate::runtime::sync::{Arc, AtomicBool, AtomicWaker, Ordering, Weak};
use crate::time::Clock;

/// The timer comes later than this only if the executor stood still.
const LATE: Duration = Duration::from_millis(100);

/// How long it then gives way to other tasks.
const A_TURN: Duration = Duration::from_millis(5);

/// Wakes the timer before its time.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rings: AtomicBool,
    waker: AtomicWaker,
}

struct Timer<R: Runtime> {
    driver: Weak<Driver<R>>,
    alarm: Arc<Alarm>,
    clock: Clock<R>,
}

/// Starts the timer of `driver`.
pub(super) fn start<R: Runtime>(driver: &Arc<Driver<R>>, clock: Clock<R>) {
    let timer = Timer { driver: Arc::downgrade(driver), alarm: driver.alarm(), clock: clock.clone() };
    clock.runtime().spawn(timer.run());
}

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rings.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl<R: Runtime> Timer<R> {
    async fn run(self) {
        let mut suspension = Suspension::watch(&self.clock);
        // Only the caller's handles keep the driver alive.
        while let Some(driver) = self.driver.upgrade() {
            if suspension.has_ended(&self.clock) {
                driver.resume();
            }
            let next = driver.handle_timeout();
            #[cfg(feature = "trace")]
            driver.report_if_broken();
            drop(driver);
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
            let now = self.clock.now();
            if next.is_some_and(|at| now.saturating_since(at) > LATE) {
                // Else a check whose answer lies in its socket would fail, and all connections be closed.
                self.clock.sleep_until(now + A_TURN).await;
            }
        }
    }
}

impl<R: Runtime> Drop for Timer<R> {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.upgrade() {
            driver.handle_runtime_gone();
        }
    }
}
