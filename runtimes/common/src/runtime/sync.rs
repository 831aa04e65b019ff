//! How the threads of a client meet: the locks, numbers and wakers that they share.
//!
//! They are those of the standard library. With the feature `__shuttle` the crate's own tests have them from shuttle, which decides at each
//! of them which thread goes on: `schedules` tries thousands of orders.

pub(crate) use std::sync::{Arc, PoisonError, Weak};

#[cfg(not(all(test, feature = "__shuttle")))]
pub(crate) use self::real::{AtomicBool, AtomicU8, AtomicWaker, Mutex, MutexGuard, Ordering};
#[cfg(all(test, feature = "__shuttle"))]
pub(crate) use self::tried::{AtomicBool, AtomicU8, AtomicWaker, Mutex, MutexGuard, Ordering};

#[cfg(not(all(test, feature = "__shuttle")))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};

    pub(crate) use atomic_waker::AtomicWaker;
}

#[cfg(all(test, feature = "__shuttle"))]
mod tried {
    use std::sync::PoisonError;
    use std::task::Waker;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    /// What `atomic_waker` does, where shuttle sees it.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

    impl AtomicWaker {
        pub(crate) fn register(&self, waker: &Waker) {
            let before = self.lock().replace(waker.clone());
            drop(before);
        }

        pub(crate) fn wake(&self) {
            if let Some(waker) = self.take() {
                waker.wake();
            }
        }

        pub(crate) fn take(&self) -> Option<Waker> {
            self.lock().take()
        }

        fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
