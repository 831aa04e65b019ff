//! The client upstream, and who clients of the hub are there.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use cmap_core::options::{Credential, ReadMode, ReadPreference};
use cmap_core::pool::IdentityId;
use cmap_core::server::MAX_WIRE_VERSION;
use cmap_core::topology::{Criteria, ServerSelector};
use cmap_tokio::{Client, ClientError, ReverseListener};

use super::StartError;
use super::changes::Changes;
use crate::config::{Config, Reverse};

/// How long a connection upstream may be used before the log says so.
const SLOW: Duration = Duration::from_secs(5);

/// How long a client's greeting waits for the first news of a server.
const UNKNOWN: Duration = Duration::from_secs(3);

/// The client upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) client: Client,
    /// Where agents come in.
    pub(super) agents: Option<ReverseListener>,
    identities: RwLock<BTreeMap<Arc<str>, IdentityId>>,
    changes: Arc<Changes>,
    heartbeat_frequency: Duration,
}

/// Identities as which nothing runs yet. Dropping them removes them.
pub(super) struct Added<'a> {
    client: &'a Client,
    identities: Vec<(Arc<str>, IdentityId)>,
}

/// The identity of a user was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// How long a server may take to accept a hub that takes over from another one.
#[cfg(unix)]
const WARM_UP: Duration = Duration::from_secs(15);

/// That of drivers, if the connection string has none.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

impl Upstream {
    pub(super) async fn new(config: &mut Config) -> Result<Self, StartError> {
        for warning in config.warnings.drain(..) {
            tracing::warn!(target: "cmap::hub", "upstream.uri: {warning}");
        }
        for advice in config.advice() {
            tracing::warn!(target: "cmap::hub", "{advice}");
        }
        let mut builder = Client::builder(config.upstream.clone());
        let mut agents = None;
        if let Some(Reverse { address, options }) = config.reverse.take() {
            let listener = ReverseListener::bind(address, options).await?;
            agents = Some(listener.clone());
            builder = builder.reverse(listener);
        }
        let client: Client = builder.watch_holders(true).leak_detection_threshold(SLOW).build().await?;
        let heartbeat_frequency = config.upstream.heartbeat_frequency.unwrap_or(HEARTBEAT_FREQUENCY);
        let this = Self { client, agents, identities: RwLock::default(), changes: Arc::default(), heartbeat_frequency };
        let identities = this.add_identities(&config.identities)?;
        this.set_identities(identities);
        Ok(this)
    }

    /// Makes identities of these credentials: of all, or of none.
    pub(super) fn add_identities<'a>(
        &self,
        credentials: impl IntoIterator<Item = (&'a String, &'a Credential)>,
    ) -> Result<Added<'_>, ClientError> {
        let mut added = Added { client: &self.client, identities: Vec::new() };
        for (name, credential) in credentials {
            let id = self.client.add_identity(credential.clone())?;
            added.identities.push((name.as_str().into(), id));
        }
        Ok(added)
    }

    /// What begins from now on may run as these. Returns those of the same names, as which nothing begins any more.
    pub(super) fn set_identities(&self, mut added: Added<'_>) -> Vec<IdentityId> {
        let mut identities = self.identities.write().unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut added.identities)
            .into_iter()
            .filter_map(|(name, id)| identities.insert(name, id))
            .collect()
    }

    /// Keeps some identities. Returns the others, as which nothing begins any more.
    pub(super) fn retain_identities(&self, is_kept: impl Fn(&str) -> bool) -> Vec<IdentityId> {
        let mut identities = self.identities.write().unwrap_or_else(PoisonError::into_inner);
        let mut outdated = Vec::new();
        identities.retain(|name, id| {
            let is_kept = is_kept(name);
            if !is_kept {
                outdated.push(*id);
            }
            is_kept
        });
        outdated
    }

    /// Waits until a server suits.
    pub(super) async fn wait_until_one_suits(&self, criteria: &Criteria) {
        self.wait_until(|| self.has_suitable(criteria)).await;
    }

    /// Waits until no server suits.
    pub(super) async fn wait_until_none_suits(&self, criteria: &Criteria) {
        self.wait_until(|| !self.has_suitable(criteria)).await;
    }

    async fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut changes = Changes::watch(&self.changes, &self.client);
        while !is_so() {
            // The client has ended: nothing changes any more.
            if changes.changed().await.is_err() {
                core::future::pending::<()>().await;
            }
        }
    }

    /// Whether a check-out would find a server now, or an error other than that there is none.
    fn has_suitable(&self, criteria: &Criteria) -> bool {
        let description = self.client.description();
        let has_left = if let ServerSelector::Pinned(address) = &criteria.selector {
            description.server(address).is_none()
        } else {
            false
        };
        let suitable = description.suitable_servers(&criteria.selector, &[], self.heartbeat_frequency);
        has_left || suitable.map_or(true, |suitable| !suitable.is_empty())
    }

    /// The identity of this name; `None` is the hub's own, as which nothing runs that has a name.
    pub(super) fn identity(&self, name: Option<&str>) -> Result<Option<IdentityId>, Gone> {
        let Some(name) = name else { return Ok(None) };
        let identities = self.identities.read().unwrap_or_else(PoisonError::into_inner);
        identities.get(name).copied().map(Some).ok_or(Gone)
    }

    /// The newest protocol that all servers speak that are known, and the hub; `None` while none is.
    pub(super) fn max_wire_version(&self) -> Option<i32> {
        let description = self.client.description();
        let newest = description.servers.iter().filter_map(|server| server.wire_versions).map(|(_, newest)| newest);
        newest.min().map(|newest| newest.min(MAX_WIRE_VERSION))
    }

    /// Connects, and logs in, as the hub itself and as each identity: who takes over from another hub has to be able to.
    #[cfg(unix)]
    pub(super) async fn warm_up(&self) -> Result<(), StartError> {
        let identities: Vec<_> =
            self.identities.read().unwrap_or_else(PoisonError::into_inner).values().copied().collect();
        let any = ReadPreference::new(ReadMode::Nearest);
        let criteria = Criteria { selector: any.into(), ..Criteria::default() };
        for identity in core::iter::once(None).chain(identities.into_iter().map(Some)) {
            let check_out = self.client.check_out_for_within(criteria.clone(), WARM_UP);
            let check_out = match identity {
                Some(identity) => check_out.identity(identity),
                None => check_out,
            };
            drop(check_out.await.map_err(StartError::Upstream)?);
        }
        Ok(())
    }

    /// Waits until a server is known, but not for long.
    pub(super) async fn wait_until_known(&self) {
        let known = async {
            let mut news = self.client.subscribe(1);
            while self.max_wire_version().is_none() && news.next().await.is_some() {}
        };
        if self.max_wire_version().is_none() {
            // Then it says what every server speaks.
            let _ = tokio::time::timeout(UNKNOWN, known).await;
        }
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        self.identities.iter().for_each(|(_, id)| self.client.remove_identity(*id));
    }
}
