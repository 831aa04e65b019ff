//! The client upstream, and who clients of the hub are there.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use cmap_core::pool::IdentityId;
use cmap_core::server::MAX_WIRE_VERSION;
use cmap_tokio::Client;

use super::StartError;
use crate::config::Config;

/// How long a connection upstream may be used before the log says so.
const SLOW: Duration = Duration::from_secs(5);

/// The client upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) client: Client,
    identities: BTreeMap<Arc<str>, IdentityId>,
}

impl Upstream {
    pub(super) async fn new(config: &mut Config) -> Result<Self, StartError> {
        for warning in config.warnings.drain(..) {
            tracing::warn!(target: "cmap::hub", "upstream.uri: {warning}");
        }
        let builder = Client::builder(config.upstream.clone());
        let client: Client = builder.watch_holders(true).slow_use_limit(SLOW).build().await?;
        let mut identities = BTreeMap::new();
        for (name, credential) in &config.identities {
            identities.insert(name.as_str().into(), client.add_identity(credential.clone())?);
        }
        Ok(Self { client, identities })
    }

    /// The identity of this name; `None` is the hub's own.
    pub(super) fn identity(&self, name: Option<&str>) -> Option<IdentityId> {
        self.identities.get(name?).copied()
    }

    /// The newest protocol that all servers that are known speak.
    pub(super) fn max_wire_version(&self) -> i32 {
        let description = self.client.description();
        let newest = description.servers.iter().filter_map(|server| server.wire_versions);
        newest.map(|(_, newest)| newest).min().unwrap_or(MAX_WIRE_VERSION)
    }
}
