//! Takes over a configuration while the hub runs: all of it that can be, or nothing. The answer names what that was, and what needs a new
//! start.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cmap_core::options::{ClientOptions, Credential, PoolSizes};
use cmap_core::pool::IdentityId;
use cmap_tokio::Client;
use serde::Serialize;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::error::ReloadError;
use super::inherited::Inherited;
use super::listeners::Listeners;
use super::shared::Shared;
use crate::config::{self, Config, Keys};

/// How long an identity that is not in the configuration any more may end what it has begun.
const LATER: Duration = Duration::from_secs(60);

/// What a reload has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Reloaded {
    /// Keys that say something else, and count from now on; `users` also for what has changed in their file.
    pub applied: Vec<String>,
    /// Keys that say something else, and count when the hub is started again.
    pub needs_restart: Vec<String>,
    /// How many connections were ended, because their user is not there any more, has other keys, or is another one upstream, or because the
    /// authority of their certificate is trusted no more.
    pub ended: usize,
}

/// Takes over configurations, one at a time.
#[derive(Debug)]
pub(super) struct Reloader {
    shared: Arc<Shared>,
    listeners: Arc<Listeners>,
    current: Mutex<Current>,
}

/// What the hub runs with.
#[derive(Debug)]
pub(super) struct Current {
    path: PathBuf,
    keys: Keys,
    upstream: ClientOptions,
    identities: BTreeMap<String, Credential>,
}

/// By what the client upstream would be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    credential: bool,
    sizes: bool,
    /// By more than these, or by what cannot be seen.
    rest: bool,
}

/// Pools upstream with other sizes. Dropping it sets those of before, if it has them.
struct Resized<'a> {
    client: &'a Client,
    before: Option<PoolSizes>,
}

impl Current {
    /// What a hub starts with.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            path: config.path.clone(),
            keys: config.keys.clone(),
            upstream: config.upstream.clone(),
            identities: config.identities.clone(),
        }
    }
}

impl Reloader {
    pub(super) fn new(current: Current, shared: &Arc<Shared>, listeners: &Arc<Listeners>) -> Self {
        Self { shared: Arc::clone(shared), listeners: Arc::clone(listeners), current: Mutex::new(current) }
    }

    /// Keeps others from reading the file again until the result is dropped.
    #[cfg(unix)]
    pub(super) async fn hold(&self) -> impl Drop {
        self.current.lock().await
    }

    /// Reads the file again, and takes it over.
    pub(super) async fn read_again(&self) -> Result<Reloaded, ReloadError> {
        let path = self.current.lock().await.path.clone();
        self.reload(config::read(&path)?).await
    }

    /// Takes over a configuration. Dropping the future before it is ready changes nothing.
    pub(super) async fn reload(&self, mut config: Config) -> Result<Reloaded, ReloadError> {
        let mut current = self.current.lock().await;
        let kept = self.keep_identities(&current.identities, &mut config);
        let upstream = &self.shared.upstream;
        // What can fail comes first.
        let listeners = self.listeners.prepare(&config.listeners, &mut Inherited::default()).await?;
        let others = other_identities(&current.identities, &config.identities);
        let added = config.identities.iter().filter(|(name, _)| others.contains(*name));
        let added = upstream.add_identities(added)?;
        let difference = Difference::between(&current.upstream, &config.upstream);
        self.change_client(&current.upstream, &config.upstream, difference).await?;

        // From here on nothing waits, so that a reload that is cut off has changed all or nothing.
        let mut outdated = upstream.set_identities(added);
        let mut reloaded = current.take_over(&config, difference, self.shared.keeps_users(&config), &kept);
        if reloaded.applied.iter().any(|key| key == "log.level")
            && let Err(error) = self.shared.program.set_log_level(&config.log.level())
        {
            tracing::warn!(target: "cmap::hub", "log.level: {error}");
        }
        reloaded.ended = self.shared.take_over(config, &others);
        // After the users who name them.
        outdated.extend(upstream.retain_identities(|name| current.identities.contains_key(name)));
        self.remove_later(outdated);
        // With the users who may come in there.
        self.listeners.open(listeners, &self.shared);
        reloaded.ended += self.shared.clients.end_untrusted();
        Ok(reloaded)
    }

    /// Adds the identities to a configuration that it has no more, but users with whom the hub goes on. Returns their names.
    fn keep_identities(&self, before: &BTreeMap<String, Credential>, config: &mut Config) -> BTreeSet<String> {
        let mut kept = BTreeSet::new();
        if self.shared.keeps_users(config) {
            for user in self.shared.users().all() {
                if let Some((name, credential)) = user.upstream.as_deref().and_then(|name| before.get_key_value(name))
                    && !config.identities.contains_key(name)
                {
                    config.identities.insert(name.clone(), credential.clone());
                    kept.insert(name.clone());
                }
            }
        }
        kept
    }

    /// Changes what the client upstream can change while it runs, or nothing.
    async fn change_client(
        &self,
        before: &ClientOptions,
        after: &ClientOptions,
        difference: Difference,
    ) -> Result<(), ReloadError> {
        let client = &self.shared.upstream.client;
        let mut resized = Resized { client, before: None };
        if difference.sizes {
            client.resize(sizes(after))?;
            resized.before = Some(sizes(before));
        }
        if difference.credential {
            client.set_credential(after.credential.clone()).await?;
        }
        resized.before = None;
        Ok(())
    }

    /// What runs as one of these may end.
    fn remove_later(&self, identities: Vec<IdentityId>) {
        if identities.is_empty() {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep(LATER).await;
            if let Some(shared) = shared.upgrade() {
                identities.into_iter().for_each(|identity| shared.upstream.client.remove_identity(identity));
            }
        });
    }
}

impl Current {
    /// Takes over what counts from now on, and says what that is. `kept` are identities that the file has no more.
    fn take_over(
        &mut self,
        config: &Config,
        difference: Difference,
        keeps_users: bool,
        kept: &BTreeSet<String>,
    ) -> Reloaded {
        let mut reloaded = Reloaded::default();
        for key in self.keys.differing(&config.keys) {
            let (applied, waits) = match key.as_str() {
                "upstream.uri" | "upstream.uri-file" => (difference.credential || difference.sizes, difference.rest),
                "users" => (!keeps_users, keeps_users),
                key if identity_of(key).is_some_and(|name| kept.contains(name)) => (false, true),
                key => (is_live(key), !is_live(key)),
            };
            if !waits {
                self.keys.take_over(&key, &config.keys);
            }
            if applied {
                reloaded.applied.push(key.clone());
            }
            if waits {
                reloaded.needs_restart.push(key);
            }
        }
        let Self { upstream, identities, .. } = self;
        upstream.credential.clone_from(&config.upstream.credential);
        upstream.pool.max_pool_size = config.upstream.pool.max_pool_size;
        upstream.pool.min_pool_size = config.upstream.pool.min_pool_size;
        identities.clone_from(&config.identities);
        reloaded
    }
}

impl Difference {
    fn between(before: &ClientOptions, after: &ClientOptions) -> Self {
        let credential = !is_same(before.credential.as_ref(), after.credential.as_ref());
        let sizes = self::sizes(before) != self::sizes(after);
        let rest = |options: &ClientOptions| {
            let mut rest = options.clone();
            (rest.credential, rest.pool.max_pool_size, rest.pool.min_pool_size) = (None, None, None);
            format!("{rest:?}")
        };
        // What is secret is not shown. If nothing else differs, it may be that.
        let rest = rest(before) != rest(after) || !credential && !sizes;
        Self { credential, sizes, rest }
    }
}

impl Drop for Resized<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take()
            && let Err(error) = self.client.resize(before)
        {
            tracing::error!(target: "cmap::hub", "upstream.uri: the sizes of before cannot be set again: {error}");
        }
    }
}

/// Whether a key counts at once, which is not the client's upstream.
fn is_live(key: &str) -> bool {
    const LIVE: [&str; 7] = [
        "compressors",
        "drain-seconds",
        "log.level",
        "status.histograms",
        "upstream.client-metadata",
        "upstream.patience-ms",
        "upstream.retries",
    ];
    LIVE.contains(&key) || ["limits.", "listen[", "upstream.identity."].iter().any(|table| key.starts_with(table))
}

/// The name of the identity that a key is about.
fn identity_of(key: &str) -> Option<&str> {
    Some(key.strip_prefix("upstream.identity.")?.rsplit_once('.')?.0)
}

fn sizes(options: &ClientOptions) -> PoolSizes {
    let sizes = PoolSizes::default().min_pool_size(options.pool.min_pool_size.unwrap_or_default());
    sizes.max_pool_size(options.pool.max_pool_size.unwrap_or_default())
}

/// The names of identities that are there in one alone, or with another credential.
fn other_identities(before: &BTreeMap<String, Credential>, after: &BTreeMap<String, Credential>) -> BTreeSet<String> {
    let names = before.keys().chain(after.keys());
    names.filter(|name| !is_same(before.get(*name), after.get(*name))).cloned().collect()
}

fn is_same(one: Option<&Credential>, other: Option<&Credential>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    let password = |of: &Credential| of.password.as_ref().map(|password| Zeroizing::new(password.expose().to_owned()));
    (&one.username, &one.source, one.mechanism) == (&other.username, &other.source, other.mechanism)
        && password(one) == password(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_have_another_password_and_other_sizes_and_nothing_else() {
        let options = |text: &str| ClientOptions::parse(text).unwrap().0;
        let before = options("mongodb://u:secret@h/?maxPoolSize=20");

        for (text, credential, sizes, rest) in [
            ("mongodb://u:tiger@h/?maxPoolSize=20", true, false, false),
            ("mongodb://v:secret@h/?maxPoolSize=30&minPoolSize=1", true, true, false),
            ("mongodb://u:tiger@other/?maxPoolSize=20", true, false, true),
            ("mongodb://u:secret@h/?maxPoolSize=20&appName=hub", false, false, true),
            // The source of a credential belongs to the rest.
            ("mongodb://h/?maxPoolSize=20", true, false, true),
        ] {
            assert_eq!(Difference::between(&before, &options(text)), Difference { credential, sizes, rest }, "{text}");
        }
    }
}
