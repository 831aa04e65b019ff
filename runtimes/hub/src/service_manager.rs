//! What a service manager learns of the program (`sd_notify`); nothing where none has asked, and on systems that have none.

#[cfg(unix)]
use sd_notify::{NotifyState, notify};

/// It serves, and is the main process of its service: after an upgrade that is another one.
pub(crate) fn is_ready() {
    #[cfg(unix)]
    tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
}

/// It has read its configuration again. By now another process may be the main one.
pub(crate) fn has_reloaded() {
    #[cfg(unix)]
    tell(&[NotifyState::Ready]);
}

/// It reads its configuration again; [`has_reloaded`] follows.
pub(crate) fn reloads() {
    #[cfg(unix)]
    // Without the time the manager would not know which reload this is.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

/// It ends.
pub(crate) fn ends() {
    #[cfg(unix)]
    tell(&[NotifyState::Stopping]);
}

#[cfg(unix)]
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!(target: "cmap::hub", "the service manager could not be told of the hub's state: {error}");
    }
}
