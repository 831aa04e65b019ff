//! The events of one command: its start, and its end however it ends; and its span.

use std::sync::Arc;

use bson::{RawDocument, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::Command;
use cmap_core::pool::Cause;
use cmap_core::server::{CommandEvent, SentCommand};
use cmap_core::time::Instant;

use crate::document::Reply;
use crate::driver::Driver;
use crate::error::CommandErrorKind;
use crate::runtime::Runtime;
use crate::spans::CommandSpan;

/// A command that has events or a span. If its future is dropped half-way, it has failed.
pub(crate) struct CommandTelling<R: Runtime> {
    driver: Arc<Driver<R>>,
    address: Arc<ServerAddress>,
    sent: Arc<SentCommand>,
    started_at: Instant,
    is_over: bool,
    has_events: bool,
    span: Option<CommandSpan>,
}

impl<R: Runtime> CommandTelling<R> {
    pub(crate) fn begin(
        driver: &Arc<Driver<R>>,
        address: &Arc<ServerAddress>,
        sent: SentCommand,
        command: &Command<'_>,
        declaration: Option<&RawDocument>,
    ) -> Self {
        let (driver, address, sent) = (Arc::clone(driver), Arc::clone(address), Arc::new(sent));
        let started_at = driver.clock.now();
        let span =
            driver.settings.spans.as_ref().and_then(|spans| spans.command(&address, &sent, command, declaration));
        let has_events = driver.settings.command_events;
        if has_events {
            let document = sent.document(command, declaration);
            driver.tell_command(&address, CommandEvent::CommandStarted { sent: Arc::clone(&sent), document });
        }
        Self { driver, address, sent, started_at, is_over: false, has_events, span }
    }

    /// The command has ended, with this reply if it got one.
    pub(crate) fn end(mut self, ended: &Result<(), CommandErrorKind>, reply: Option<Reply<'_>>) {
        self.is_over = true;
        match (&self.span, ended, &reply) {
            (Some(span), Err(error), _) => span.record_failure(error),
            (Some(span), Ok(()), Some(reply)) => span.record_reply(reply),
            (Some(_), Ok(()), None) | (None, _, _) => {}
        }
        if !self.has_events {
            return;
        }
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
                self.tell_failure(self.sent.failure(Cause::of(error), refusal));
            }
        }
    }

    fn tell_failure(&self, failure: Cause) {
        let (sent, duration) = (Arc::clone(&self.sent), self.duration());
        self.tell(CommandEvent::CommandFailed { sent, duration, failure });
    }

    fn tell(&self, event: CommandEvent) {
        self.driver.tell_command(&self.address, event);
    }

    fn duration(&self) -> std::time::Duration {
        self.driver.clock.now().saturating_since(self.started_at)
    }
}

impl<R: Runtime> Drop for CommandTelling<R> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Some(span) = &self.span {
            span.record_given_up();
        }
        if self.has_events {
            self.tell_failure(Cause::new("its caller gave it up"));
        }
    }
}
