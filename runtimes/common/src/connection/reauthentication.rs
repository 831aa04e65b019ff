//! Another login on an open connection, which its server asks for by code 391 (OIDC-1): MONGODB-OIDC's, or that of a mechanism of the
//! user's own. A login that fails costs the connection, and says nothing of the server.

use std::future::poll_fn;
use std::sync::Arc;

use bson::RawDocumentBuf;
use cmap_core::connection::auth::AccessToken;
use cmap_core::connection::{Command, CommandError as NotSent, EstablishError, Fault, Phase, SaslLogin, SaslProgress};
use cmap_core::time::Instant;
use cmap_core::wire::ServerError;
use zeroize::Zeroize;

use super::{Connection, Stage, limited};
use crate::error::CommandErrorKind;
use crate::establish::{TokenCache, random};
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;
use crate::time::TimeLimit;

/// The code by which a server asks for another login.
const REAUTHENTICATION_REQUIRED: i32 = 391;

/// The limit of a command, and when it began.
#[derive(Clone, Copy)]
pub(super) struct Time {
    pub(super) limit: TimeLimit,
    pub(super) began: Instant,
}

/// A command with a secret in it, which is overwritten when it is dropped.
struct SecretCommand(RawDocumentBuf);

/// A connection on which a command of a login runs. What was to be sent is overwritten when this is dropped.
struct LoggingIn<'c, R: Runtime>(&'c mut Connection<R>);

/// Whether a server has refused a command since it wants another login.
pub(super) fn is_asked_for(error: &ServerError) -> bool {
    error.code == Some(REAUTHENTICATION_REQUIRED)
}

impl<R: Runtime> Connection<R> {
    /// Logs in again, and runs the `command` that was refused for that once more, retryable or not. The login takes of the command's
    /// time.
    ///
    /// # Errors
    /// The `refusal` itself, if the connection's login cannot be repeated, and those of the login and of the command.
    pub(super) async fn run_after_login(
        &mut self,
        refusal: Box<ServerError>,
        command: &Command<'_>,
        time: Option<Time>,
        operation: Option<u64>,
    ) -> Result<(), CommandErrorKind> {
        let credential = self.socket.as_ref().and_then(|socket| socket.credential.as_ref());
        let Some(options) = self.driver.login_of(self.handle, credential) else {
            return Err(CommandErrorKind::Server(refusal));
        };
        let begun = random(self.driver.clock.runtime()).and_then(|random| SaslLogin::begin(&options, &random));
        let login = match begun {
            Ok(Some(login)) => login,
            Ok(None) => return Err(CommandErrorKind::Server(refusal)),
            Err(error) => {
                //
                self.stage = Stage::UnderWay;
                self.set_cursor_duty(None);
                return Err(failed(error));
            }
        };
        self.left_for_more(time)?;
        let tokens = self.driver.settings.tokens.of(&options);
        self.stage = Stage::UnderWay;
        // A login that is given up has made no cursor: its connection is closed.
        let duty = self.socket.as_mut().and_then(|socket| socket.cursor_duty.take());
        self.log_in(login, tokens.as_ref(), time).await?;
        if let Some(socket) = &mut self.socket {
            socket.cursor_duty = duty;
        }
        let left = self.left_for_more(time)?;
        self.run_once(command, left, operation).await
    }

    /// What is left for the next step.
    fn left(&self, time: Option<Time>) -> Option<TimeLimit> {
        time.map(|Time { limit, began }| limit.after(self.driver.clock.now().saturating_since(began)))
    }

    /// What is left, where the connection can still be used as it is.
    ///
    /// # Errors
    /// Nothing is (CSOT-10).
    fn left_for_more(&self, time: Option<Time>) -> Result<Option<TimeLimit>, CommandErrorKind> {
        match self.left(time) {
            Some(left) if left.duration().is_zero() => {
                let round_trip = self.driver.min_round_trip_time(self.handle);
                Err(CommandErrorKind::NoTimeLeft { left, round_trip })
            }
            left => Ok(left),
        }
    }

    /// Until it succeeds, the connection is in the middle of something.
    async fn log_in(
        &mut self,
        mut login: SaslLogin,
        tokens: Option<&Arc<TokenCache>>,
        time: Option<Time>,
    ) -> Result<(), CommandErrorKind> {
        let mut used = self.socket.as_mut().and_then(|socket| socket.token.take());
        let mut progress = login.start().map_err(failed)?;
        loop {
            let next = match progress {
                SaslProgress::Done => break,
                SaslProgress::Token => {
                    let Some(tokens) = tokens else { return Err(failed(nowhere())) };
                    // The server has refused it, or does not take it any more (OIDC-4).
                    used.iter().for_each(|token| tokens.invalidate(token));
                    let token = self.fetch_token(tokens, self.left(time)).await?;
                    used = Some(token.secret().clone());
                    login.handle_token(&token)
                }
                SaslProgress::Send(command) => {
                    let command = SecretCommand(command);
                    let reply = self.run_login_command(login.source(), &command, self.left(time)).await?;
                    login.handle_reply(&reply)
                }
            };
            progress = next.map_err(failed)?;
        }
        let Some(socket) = self.socket.as_mut() else { return Err(CommandErrorKind::NotSent(NotSent::Errored)) };
        socket.token = used;
        self.stage = self.socket.as_ref().map_or(Stage::UnderWay, |socket| self.stage_after_reply(socket));
        Ok(())
    }

    /// Runs a command of the login, of which no event tells. Returns the reply, also if it is a refusal.
    async fn run_login_command(
        &mut self,
        source: &str,
        SecretCommand(command): &SecretCommand,
        limit: Option<TimeLimit>,
    ) -> Result<RawDocumentBuf, CommandErrorKind> {
        let broken = || CommandErrorKind::NotSent(NotSent::Errored);
        let sent = Command::new(source, command);
        let logging_in = LoggingIn(self);
        let connection = &mut *logging_in.0;
        let prepared = connection.socket.as_mut().ok_or_else(broken)?.prepare(&sent, &connection.driver.buffers);
        let ran = match prepared {
            Ok(()) => connection.carry_out(&sent, limit).await,
            Err(error) => Err(error),
        };
        drop(logging_in);
        self.stage = Stage::UnderWay;
        let socket = self.socket.as_mut().ok_or_else(broken)?;
        match ran {
            Ok(()) | Err(CommandErrorKind::Server(_)) => Ok(socket.reply()?.to_owned()),
            //
            Err(CommandErrorKind::Network(error)) => {
                Err(failed(EstablishError::new(Phase::Authenticate, Fault::Network, error.to_string())))
            }
            Err(error) => Err(error),
        }
    }

    /// A token for the login: one that is there, or one that a task of the home runtime fetches.
    async fn fetch_token(
        &mut self,
        tokens: &Arc<TokenCache>,
        limit: Option<TimeLimit>,
    ) -> Result<AccessToken, CommandErrorKind> {
        let Some(socket) = self.socket.as_mut() else { return Err(CommandErrorKind::NotSent(NotSent::Errored)) };
        let (abort, address) = (Arc::clone(&socket.abort), Arc::clone(&socket.address));
        let (slot, filler) = Slot::empty();
        let (tokens, clock) = (Arc::clone(tokens), self.driver.clock.clone());
        // not the caller's limit, since others may wait for this token, too.
        let until = clock.deadline(self.driver.settings.timeout);
        let runtime = clock.runtime().clone();
        runtime.spawn(async move { filler.fill(tokens.get(&clock, until).await) });
        let mut fetched = None;
        let fetching = async {
            fetched = Some(poll_fn(|cx| slot.poll(cx)).await?);
            Ok(())
        };
        limited(&self.driver, &address, &abort, limit, fetching).await?;
        fetched.unwrap_or_else(|| Err(nowhere())).map_err(failed)
    }
}

impl Drop for SecretCommand {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_bytes().zeroize();
    }
}

impl<R: Runtime> Drop for LoggingIn<'_, R> {
    fn drop(&mut self) {
        if let Some(socket) = &mut self.0.socket {
            socket.wipe_output();
        }
    }
}

fn failed(error: EstablishError) -> CommandErrorKind {
    CommandErrorKind::Reauthentication(Box::new(error))
}

fn nowhere() -> EstablishError {
    EstablishError::new(Phase::Authenticate, Fault::Other, "no access token can be fetched")
}
