//! The notices for a service manager (systemd's `Type=notify`).

/// The relay dials.
pub(crate) fn is_ready() {
    #[cfg(unix)]
    tell(sd_notify::NotifyState::Ready);
}

/// The relay drains.
pub(crate) fn ends() {
    #[cfg(unix)]
    tell(sd_notify::NotifyState::Stopping);
}

/// Tells the service manager, if there is one. It only waits for it, so a failure changes nothing for the relay.
#[cfg(unix)]
fn tell(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told; check NOTIFY_SOCKET");
    }
}
