//! The access tokens of a client, a cache for each user of MONGODB-OIDC (OIDC-3).
//!
//! Connections log in with the token that is there. Who finds none fetches one, while others wait for it: one call at a time, and
//! the next no sooner than 100 ms later (OIDC-5). A call ends with the time of the establishment that makes it.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cmap_core::ErrorChain;
use cmap_core::connection::auth::AccessToken;
use cmap_core::connection::{ConnectionOptions, EstablishError, Fault, Phase};
use cmap_core::options::{Credential, Mechanism, Secret, TokenEnvironment};
use cmap_core::time::Instant;

use super::token_source::{TokenCallback, TokenRequest, TokenSource};
use crate::runtime::Runtime;
use crate::time::{Clock, Deadline};

/// The shortest time between two calls (OIDC-5).
const PAUSE: Duration = Duration::from_millis(100);
/// How long a call may take where connectTimeoutMS sets no limit (OIDC-8).
const LONGEST_CALL: Duration = Duration::from_secs(60);
/// The version of a callback's interface.
const VERSION: u32 = 1;

/// The caches of a client.
#[derive(Default)]
pub(crate) struct Tokens {
    callback: Option<TokenCallback>,
    caches: Mutex<BTreeMap<User, Arc<TokenCache>>>,
}

/// Who logs in, and where the tokens come from: the name, and the environment.
type User = (Option<String>, Option<TokenEnvironment>);

/// The access token of one user.
pub(crate) struct TokenCache {
    source: TokenSource,
    username: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Secret>,
    /// Whether a call is under way.
    is_busy: bool,
    /// When the last call ended.
    last_call: Option<Instant>,
    waiters: Vec<Waker>,
}

/// The turn to make a call. Dropping it ends the call, and lets the others look again.
struct Turn<'a, R: Runtime> {
    cache: &'a TokenCache,
    clock: &'a Clock<R>,
    has_called: bool,
}

impl Tokens {
    pub(crate) fn new(callback: Option<TokenCallback>) -> Self {
        Self { callback, caches: Mutex::default() }
    }

    pub(crate) fn has_callback(&self) -> bool {
        self.callback.is_some()
    }

    /// The cache for connections with these options; `None` if they log in without a token.
    pub(crate) fn of(&self, options: &ConnectionOptions) -> Option<Arc<TokenCache>> {
        let credential = options.credential.as_deref().filter(|_| options.mechanism.is_none())?;
        if credential.mechanism != Some(Mechanism::MongoDbOidc) {
            return None;
        }
        let source = self.source_of(credential)?;
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = caches.entry(user_of(credential)).or_insert_with(|| {
            Arc::new(TokenCache { source, username: credential.username.clone(), state: Mutex::default() })
        });
        Some(Arc::clone(cache))
    }

    /// Forgets the tokens of users who have none of these credentials.
    pub(crate) fn retain<'c>(&self, credentials: impl Iterator<Item = &'c Credential>) {
        let with_token = credentials.filter(|credential| credential.mechanism == Some(Mechanism::MongoDbOidc));
        let users: Vec<User> = with_token.map(user_of).collect();
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|user, _| users.contains(user));
    }

    fn source_of(&self, credential: &Credential) -> Option<TokenSource> {
        match credential.token_environment() {
            Some(environment) => Some(TokenSource::File(environment)),
            None => self.callback.clone().map(TokenSource::Callback),
        }
    }
}

impl TokenCache {
    /// The token that is there.
    pub(crate) fn cached(&self) -> Option<Secret> {
        self.lock().token.clone()
    }

    /// Forgets `token`, unless another one has taken its place already (OIDC-3).
    pub(crate) fn invalidate(&self, token: &Secret) {
        let mut state = self.lock();
        if state.token.as_ref().is_some_and(|own| own.expose() == token.expose()) {
            state.token = None;
        }
    }

    /// The token that is there, or one that is fetched, until `until`. Awaited only in tasks of the home runtime.
    ///
    /// # Errors
    /// None could be fetched. The error is one of the login.
    pub(crate) async fn get<R: Runtime>(
        &self,
        clock: &Clock<R>,
        until: Option<Instant>,
    ) -> Result<AccessToken, EstablishError> {
        let until = until.unwrap_or_else(|| clock.now() + LONGEST_CALL);
        match clock.before(Some(until), self.look_up(clock, until)).await {
            Some(token) => token,
            None => {
                Err(failed(Fault::Timeout, "there was no access token within connectTimeoutMS, which may allow more"))
            }
        }
    }

    async fn look_up<R: Runtime>(&self, clock: &Clock<R>, until: Instant) -> Result<AccessToken, EstablishError> {
        let mut turn = match self.turn(clock).await {
            Ok(turn) => turn,
            Err(token) => return Ok(AccessToken::Cached(token)),
        };
        let last_call = self.lock().last_call;
        if let Some(last_call) = last_call {
            clock.sleep_until(last_call + PAUSE).await;
        }
        let deadline = Deadline::within(clock.runtime(), until.saturating_since(clock.now()));
        let request = TokenRequest { version: VERSION, deadline, username: self.username.clone() };
        turn.has_called = true;
        let mut fetching = pin!(self.source.fetch(clock.runtime(), request));
        let fetched = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| fetching.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| Poll::Ready(Err("the callback panicked".into())))
        });
        let token = fetched.await.map_err(|error| {
            failed(Fault::Other, &format!("no access token could be fetched: {}", ErrorChain(&*error)))
        })?;
        self.lock().token = Some(token.clone());
        Ok(AccessToken::Fetched(token))
    }

    /// The turn to fetch a token; the token instead, if there is one.
    async fn turn<'a, R: Runtime>(&'a self, clock: &'a Clock<R>) -> Result<Turn<'a, R>, Secret> {
        poll_fn(|cx| {
            let waker = cx.waker().clone();
            let mut state = self.lock();
            if let Some(token) = state.token.clone() {
                return Poll::Ready(Err(token));
            }
            if !state.is_busy {
                state.is_busy = true;
                return Poll::Ready(Ok(Turn { cache: self, clock, has_called: false }));
            }
            if !state.waiters.iter().any(|known| known.will_wake(&waker)) {
                state.waiters.push(waker);
            }
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        // A call that was cut off has ended as well.
        let ended = self.has_called.then(|| self.clock.now());
        let waiters = {
            let mut state = self.cache.lock();
            state.is_busy = false;
            state.last_call = ended.or(state.last_call);
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }
}

fn user_of(credential: &Credential) -> User {
    (credential.username.clone(), credential.token_environment())
}

fn failed(fault: Fault, problem: &str) -> EstablishError {
    EstablishError::new(Phase::Authenticate, fault, format!("MONGODB-OIDC: {problem}"))
}
