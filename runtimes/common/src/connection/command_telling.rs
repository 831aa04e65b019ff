//! The events of one command: its start, and its end however it ends; and its span, where the feature `tracing` is on.

use std::future::Future;
use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::pool::Cause;
use cmap_core::server::{CommandEvent, SentCommand};
use cmap_core::time::Instant;

use crate::document::Reply;
use crate::driver::Driver;
use crate::error::CommandErrorKind;
use crate::runtime::Runtime;

/// A command whose start had an event. If its future is dropped half-way, it has failed.
pub(crate) struct CommandTelling<R: Runtime> {
    driver: Arc<Driver<R>>,
    address: Arc<ServerAddress>,
    sent: Arc<SentCommand>,
    started_at: Instant,
    is_over: bool,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl<R: Runtime> CommandTelling<R> {
    pub(crate) fn begin(
        driver: &Arc<Driver<R>>,
        address: &Arc<ServerAddress>,
        sent: SentCommand,
        document: RawDocumentBuf,
    ) -> Self {
        let (driver, address, sent) = (Arc::clone(driver), Arc::clone(address), Arc::new(sent));
        let started_at = driver.clock().now();
        #[cfg(feature = "tracing")]
        let span = crate::events::spans::of_command(&address, &sent);
        driver.tell_command(&address, CommandEvent::CommandStarted { sent: Arc::clone(&sent), document });
        Self {
            driver,
            address,
            sent,
            started_at,
            is_over: false,
            #[cfg(feature = "tracing")]
            span,
        }
    }

    /// The command has ended, with this reply if it got one.
    pub(crate) fn end(mut self, ended: &Result<(), CommandErrorKind>, reply: Option<Reply<'_>>) {
        match ended {
            Ok(()) => {
                let reply = match reply {
                    Some(reply) => self.sent.reply(&reply),
                    // None was wanted.
                    None => rawdoc! { "ok": 1 },
                };
                let (sent, duration) = (Arc::clone(&self.sent), self.duration());
                self.tell(CommandEvent::CommandSucceeded { sent, duration, reply });
            }
            Err(error) => {
                let refusal = if let CommandErrorKind::Server(refusal) = error { Some(&**refusal) } else { None };
                self.fail(self.sent.failure(Cause::of(error), refusal));
            }
        }
    }

    fn fail(&mut self, failure: Cause) {
        #[cfg(feature = "tracing")]
        self.span.record("failure", tracing::field::display(&failure));
        let (sent, duration) = (Arc::clone(&self.sent), self.duration());
        self.tell(CommandEvent::CommandFailed { sent, duration, failure });
    }

    fn tell(&mut self, event: CommandEvent) {
        self.is_over = true;
        self.driver.tell_command(&self.address, event);
    }

    fn duration(&self) -> std::time::Duration {
        self.driver.clock().now().saturating_since(self.started_at)
    }
}

/// What carries a command out, in the span of the command if it has events.
#[cfg(feature = "tracing")]
pub(crate) fn in_span<R: Runtime, F: Future>(
    telling: Option<&CommandTelling<R>>,
    future: F,
) -> impl Future<Output = F::Output> + use<R, F> {
    let span = telling.map_or_else(tracing::Span::none, |telling| telling.span.clone());
    tracing::Instrument::instrument(future, span)
}

/// What carries a command out.
#[cfg(not(feature = "tracing"))]
pub(crate) fn in_span<R: Runtime, F: Future>(_: Option<&CommandTelling<R>>, future: F) -> F {
    future
}

impl<R: Runtime> Drop for CommandTelling<R> {
    fn drop(&mut self) {
        if !self.is_over {
            self.fail(Cause::new("its caller gave it up"));
        }
    }
}
