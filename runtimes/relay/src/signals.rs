//! The signals that end the program.

use std::io;
use std::task::{Context, Poll};

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlBreak, CtrlC, ctrl_break, ctrl_c};

/// SIGTERM and SIGINT; on Windows Ctrl-Break and Ctrl-C.
#[cfg(unix)]
pub(crate) struct Signals([Signal; 2]);
#[cfg(windows)]
pub(crate) struct Signals(CtrlBreak, CtrlC);

impl Signals {
    /// Takes them over from the system.
    ///
    /// # Errors
    /// The system refuses.
    #[cfg(unix)]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    #[cfg(windows)]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(ctrl_break()?, ctrl_c()?))
    }

    /// Ends when one comes.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(unix)]
        let polled = self.0.each_mut().map(|signal| signal.poll_recv(cx));
        #[cfg(windows)]
        let polled = [self.0.poll_recv(cx), self.1.poll_recv(cx)];
        if polled.iter().any(Poll::is_ready) { Poll::Ready(()) } else { Poll::Pending }
    }
}
