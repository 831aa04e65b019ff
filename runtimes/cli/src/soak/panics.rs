//! Panics of this process, in any thread or task: a runtime may swallow those of the library's own tasks.

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on; they are printed as before.
pub(super) fn watch() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        print(panic);
    }));
}

/// How many there were.
pub(super) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}
