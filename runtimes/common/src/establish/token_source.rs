//! Where access tokens of MONGODB-OIDC come from: the application's callback, or a file (OIDC-8, OIDC-9).

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::connection::auth::MechanismError;
use cmap_core::options::{Secret, TokenEnvironment};

use crate::error::RuntimeGone;
use crate::runtime::Runtime;
use crate::time::Deadline;

/// The longest token that is read from a file, in bytes. A token goes along with every hello.
const MAX_TOKEN: u64 = 64 * 1024;

/// The request for an access token, which a callback gets (OIDC-8).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenRequest {
    /// The version of this interface: 1. It rises when something is added that callbacks may want to know of.
    pub version: u32,
    /// When the callback is dropped, if it has not returned: the end of connectTimeoutMS, or a minute after its call if there is none.
    pub deadline: Deadline,
    /// The user's name in the connection string.
    pub username: Option<String>,
}

/// What a callback returns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenReply {
    /// The access token, as it goes to the server.
    pub access_token: Secret,
    /// For how long the token is good. It is not used yet: a token is used until a server refuses it.
    pub expires_in: Option<Duration>,
}

/// Fetches access tokens: [`Builder::oidc_callback`](crate::Builder::oidc_callback).
pub(crate) type TokenCallback = Arc<dyn Fn(TokenRequest) -> Fetching + Send + Sync>;

/// A call of a callback. Dropping it cancels it.
pub(crate) type Fetching = Pin<Box<dyn Future<Output = Result<TokenReply, MechanismError>> + Send>>;

/// Where the tokens of one credential come from.
#[derive(Clone)]
pub(super) enum TokenSource {
    Callback(TokenCallback),
    File(TokenEnvironment),
}

impl TokenReply {
    /// An access token.
    pub fn new(access_token: impl Into<Secret>) -> Self {
        Self { access_token: access_token.into(), expires_in: None }
    }

    /// Says for how long the token is good.
    #[must_use]
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }
}

impl TokenSource {
    /// Fetches a token. `request` is for a callback.
    ///
    /// # Errors
    /// There is none. The text is the callback's own, or names the file.
    pub(super) async fn fetch<R: Runtime>(&self, runtime: &R, request: TokenRequest) -> Result<Secret, MechanismError> {
        let token = match self {
            Self::Callback(callback) => callback(request).await?.access_token,
            Self::File(environment) => {
                let path = path(*environment, |variable| std::env::var_os(variable))?;
                let read = runtime.spawn_blocking(move || read_token(&path).map_err(|error| (path, error))).await;
                read.ok_or(RuntimeGone)?
                    .map_err(|(path, error)| format!("{} cannot be read: {error}", path.display()))?
            }
        };
        if token.expose().is_empty() {
            return Err("the access token is empty".into());
        }
        Ok(token)
    }
}

/// Where an environment keeps its token.
fn path(environment: TokenEnvironment, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, MechanismError> {
    let named = |name| variable(name).filter(|path| !path.is_empty());
    match environment {
        TokenEnvironment::Test => named("OIDC_TOKEN_FILE")
            .map(PathBuf::from)
            .ok_or_else(|| "ENVIRONMENT:test needs the variable OIDC_TOKEN_FILE, which names the token's file".into()),
        TokenEnvironment::K8s => {
            let named = named("AZURE_FEDERATED_TOKEN_FILE").or_else(|| named("AWS_WEB_IDENTITY_TOKEN_FILE"));
            Ok(named.map_or_else(|| "/var/run/secrets/kubernetes.io/serviceaccount/token".into(), PathBuf::from))
        }
        // The builder has refused them.
        TokenEnvironment::Azure | TokenEnvironment::Gcp | _ => {
            Err(format!("ENVIRONMENT:{} needs HTTP; bring a callback", environment.name()).into())
        }
    }
}

/// The token in a file; a line feed at its end is not a part of it.
fn read_token(path: &std::path::Path) -> io::Result<Secret> {
    let mut text = zeroize::Zeroizing::new(String::new());
    let read = std::fs::File::open(path)?.take(MAX_TOKEN + 1).read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|read| read > MAX_TOKEN) {
        return Err(io::Error::other(format!("it is longer than {MAX_TOKEN} bytes")));
    }
    Ok(text.trim_end().into())
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callback(_) => f.write_str("Callback"),
            Self::File(environment) => f.debug_tuple("File").field(environment).finish(),
        }
    }
}

/// A callback of the user's as it is kept.
pub(crate) fn token_callback<F, W, E>(callback: F) -> TokenCallback
where
    F: Fn(TokenRequest) -> W + Send + Sync + 'static,
    W: Future<Output = Result<TokenReply, E>> + Send + 'static,
    E: Into<MechanismError>,
{
    Arc::new(move |request| {
        let fetching = callback(request);
        Box::pin(async move { fetching.await.map_err(Into::into) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_with(environment: TokenEnvironment, set: &[(&str, &str)]) -> Result<PathBuf, String> {
        let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        path(environment, variable).map_err(|error| error.to_string())
    }

    #[test]
    fn kubernetes_names_its_file_by_variables_or_has_it_at_its_place() {
        let [azure, aws] = [("AZURE_FEDERATED_TOKEN_FILE", "/azure"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/aws")];
        let place = "/var/run/secrets/kubernetes.io/serviceaccount/token";

        for (set, expected) in
            [(&[aws, azure][..], "/azure"), (&[aws], "/aws"), (&[("AWS_WEB_IDENTITY_TOKEN_FILE", "")], place)]
        {
            assert_eq!(path_with(TokenEnvironment::K8s, set), Ok(expected.into()));
        }
    }

    #[test]
    fn the_environment_of_tests_needs_its_variable() {
        assert_eq!(path_with(TokenEnvironment::Test, &[("OIDC_TOKEN_FILE", "/t")]), Ok("/t".into()));
        assert!(path_with(TokenEnvironment::Test, &[]).unwrap_err().contains("OIDC_TOKEN_FILE"));
    }

    #[test]
    fn a_file_is_read_without_the_line_feed_at_its_end() {
        let file = std::env::temp_dir().join(format!("cmap-token-{}", std::process::id()));
        std::fs::write(&file, "abcd1234\n").unwrap();
        let token = read_token(&file);
        std::fs::write(&file, "a".repeat(70_000)).unwrap();
        let too_long = read_token(&file);
        std::fs::remove_file(&file).unwrap();

        assert_eq!(token.unwrap().expose(), "abcd1234");
        assert!(too_long.unwrap_err().to_string().contains("longer than 65536 bytes"));
    }
}
