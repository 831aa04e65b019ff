//! Panics as broken laws: a seed whose machine panics is shrunk and printed like any other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use super::oracle::Broken;

thread_local! {
    /// Whether this thread catches panics now.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// Where the last one was that it caught.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Does the work. A panic breaks a law. It is not printed: the shrinker meets the same one many times.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, Broken>) -> Result<T, Broken> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| if CATCHES.get() { note(info) } else { before(info) }));
    });
    let caught_before = CATCHES.replace(true);
    // Nothing calls the machine again after a panic, so no broken invariant is seen.
    let ended = catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(caught_before);
    ended.unwrap_or_else(|panic| Err(of(panic.as_ref())))
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    PLACE.with(|known| known.replace(place));
}

fn of(panic: &(dyn Any + Send)) -> Broken {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let place = PLACE.with(RefCell::take);
    Broken { law: "nothing panics", detail: format!("{place}: {}", text.unwrap_or_default()) }
}
