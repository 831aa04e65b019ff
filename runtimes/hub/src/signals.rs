//! What the operator asks for by signals.

use std::io;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Read users, rules and limits again: SIGHUP.
    Reload,
    /// End: SIGTERM, SIGINT.
    End,
}

/// The signals of this process.
#[cfg(unix)]
pub(crate) struct Signals {
    hang_up: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self { hang_up: signal(SignalKind::hangup())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.hang_up.recv() => Asked::Reload,
            _ = self.terminate.recv() => Asked::End,
            _ = tokio::signal::ctrl_c() => Asked::End,
        }
    }
}

/// Elsewhere there is Ctrl-C alone.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Asked {
        // A signal that cannot be heard never comes.
        match tokio::signal::ctrl_c().await {
            Ok(()) => Asked::End,
            Err(_) => std::future::pending().await,
        }
    }
}
