//! Files of all clients when the program panics.
//!
//! The hook is added once, when the first recorder with a directory is made, and calls the one that was there. It never waits
//! for a lock that the panicking thread may hold.

use std::panic;
use std::sync::{Mutex, Once, PoisonError, TryLockError, Weak};

/// What writes a client's file.
pub(super) trait Files: Send + Sync {
    /// Writes it in this thread, unless one was written within the last minute, or the client's lock is held.
    fn write_now(&self);
}

static LIVE: Mutex<Vec<Weak<dyn Files>>> = Mutex::new(Vec::new());

/// Has a client's file written when the program panics.
pub(super) fn register(files: Weak<dyn Files>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            write_all();
            before(info);
        }));
    });
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    live.retain(|files| files.strong_count() > 0);
    live.push(files);
}

fn write_all() {
    let live = match LIVE.try_lock() {
        Ok(live) => live.clone(),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
        Err(TryLockError::WouldBlock) => return,
    };
    live.iter().filter_map(Weak::upgrade).for_each(|files| files.write_now());
}
