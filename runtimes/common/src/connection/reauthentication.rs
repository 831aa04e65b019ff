//! Another login on an open connection, which its server asks for by code 391 (OIDC-1): MONGODB-OIDC's, or that of a mechanism of the
//! user's own. A login that fails costs the connection, and says nothing of the server.

use std::future::poll_fn;
use std::sync::Arc;

use bson::RawDocumentBuf;
use cmap_core::connection::auth::AccessToken;
use cmap_core::connection::{Command, CommandError as NotSent, EstablishError, Fault, Phase, SaslLogin, SaslProgress};
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
        limit: Option<TimeLimit>,
        operation: Option<u64>,
    ) -> Result<(), CommandErrorKind> {
        let clock = self.driver.clock.clone();
        let began = clock.now();
        let Some(options) = self.driver.login_of(self.handle) else { return Err(CommandErrorKind::Server(refusal)) };
        let login = random(clock.runtime()).and_then(|random| SaslLogin::begin(&options, &random));
        let Some(login) = login.map_err(failed)? else { return Err(CommandErrorKind::Server(refusal)) };
        let tokens = self.driver.settings.tokens.of(&options);
        self.stage = Stage::UnderWay;
        self.log_in(login, tokens.as_ref(), limit).await?;
        let took = clock.now().saturating_since(began);
        self.run_once(command, limit.map(|limit| limit.after(took)), operation).await
    }

    /// Until it succeeds, the connection is in the middle of something.
    async fn log_in(
        &mut self,
        mut login: SaslLogin,
        tokens: Option<&Arc<TokenCache>>,
        limit: Option<TimeLimit>,
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
                    let token = self.fetch_token(tokens, limit).await?;
                    used = Some(token.secret().clone());
                    login.handle_token(&token)
                }
                SaslProgress::Send(command) => {
                    let reply = self.run_login_command(login.source(), command, limit).await?;
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
        command: RawDocumentBuf,
        limit: Option<TimeLimit>,
    ) -> Result<RawDocumentBuf, CommandErrorKind> {
        let broken = || CommandErrorKind::NotSent(NotSent::Errored);
        let sent = Command::new(source, &command);
        let prepared = self.socket.as_mut().ok_or_else(broken)?.prepare(&sent, &self.driver.buffers);
        let ran = match prepared {
            Ok(()) => self.carry_out(&sent, limit).await,
            Err(error) => Err(error),
        };
        self.stage = Stage::UnderWay;
        command.into_bytes().zeroize();
        let socket = self.socket.as_mut().ok_or_else(broken)?;
        socket.wipe_output();
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

fn failed(error: EstablishError) -> CommandErrorKind {
    CommandErrorKind::Reauthentication(Box::new(error))
}

fn nowhere() -> EstablishError {
    EstablishError::new(Phase::Authenticate, Fault::Other, "no access token can be fetched")
}
