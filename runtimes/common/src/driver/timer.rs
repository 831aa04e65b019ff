//! The one task of a client that sleeps: it comes back when the machine or a monitor says so.
//!
//! Whenever it wakes it sees whether the machine was suspended meanwhile. If it wakes late, because the executor stood still, it gives
//! way to the tasks of sockets first: what they can read has come in time. It holds the topology weakly and ends with it. When its
//! runtime ends first, the task is dropped, and that tells the topology that its home is gone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::Topology;
use super::suspension::Suspension;
use crate::clock::Clock;
use crate::establish::Requester;
use crate::runtime::Runtime;
use crate::sync::{Arc, AtomicBool, AtomicWaker, Ordering, Weak};

/// The driver comes later than this only if the executor stood still.
const LATE: Duration = Duration::from_millis(100);

/// How long it then gives way to other tasks.
const A_TURN: Duration = Duration::from_millis(5);

/// Wakes the driver before its time.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rings: AtomicBool,
    waker: AtomicWaker,
}

struct Driver<R: Runtime> {
    topology: Weak<Topology<R>>,
    alarm: Arc<Alarm>,
    clock: Clock<R>,
}

/// Starts the driver of `topology`.
pub(super) fn start<R: Runtime>(topology: &Arc<Topology<R>>, clock: Clock<R>) {
    let driver = Driver { topology: Arc::downgrade(topology), alarm: topology.alarm(), clock: clock.clone() };
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
        let mut suspension = Suspension::watch(&self.clock);
        // Only the caller's handles keep the topology alive.
        while let Some(topology) = self.topology.upgrade() {
            if suspension.has_ended(&self.clock) {
                topology.resume();
            }
            let next = topology.handle_timeout();
            #[cfg(feature = "trace")]
            topology.report_if_broken();
            drop(topology);
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

impl<R: Runtime> Drop for Driver<R> {
    fn drop(&mut self) {
        if let Some(topology) = self.topology.upgrade() {
            topology.handle_runtime_gone();
        }
    }
}
