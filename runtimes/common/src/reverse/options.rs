//! The settings of a listener: its certificate, who may speak for which member, and how much strangers may cost.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::options::Secret;
use cmap_core::reverse::{IdleTunnelOptions, Tokens};

use super::event::ReverseEvent;

/// The options of a [`ReverseListener`](super::ReverseListener).
///
/// Agents need a token or a certificate: without [`tokens`](Self::tokens) and [`authorities`](Self::authorities) nobody is let in,
/// and binding fails.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReverseOptions {
    /// The listener's certificate and its private key, which agents check, in one PEM text.
    pub certificate_key: PemSource,
    /// The password of the private key, if it is encrypted (feature `encrypted-keys`). Default none.
    pub certificate_key_password: Option<Secret>,
    /// The tokens of agents, and the members that each is good for. Default none.
    pub tokens: Tokens,
    /// The authorities of agents' certificates, as a PEM text. An agent with a certificate of theirs may speak for the members whose
    /// host the certificate names, at any port, without a token. Default none: certificates are not asked for.
    pub authorities: Option<PemSource>,
    /// The longest silence on a parked socket: each side says something at least so often, and gives up the other after three times
    /// as long. At least a second. Default 10 s.
    pub keep_alive: Duration,
    /// How many sockets each agent is to have parked for each of its members at all times. Default 4: two for a pool that establishes
    /// two connections at a time, and two for its monitor. No more are asked for than `limits.max_parked`.
    pub wanted: u16,
    /// How many sockets may be parked, and on their way to it.
    pub limits: IdleTunnelOptions,
    pub(super) handler: Option<Handler>,
}

/// The handler of events.
pub(super) type Handler = Arc<dyn Fn(&ReverseEvent) + Send + Sync>;

/// Where PEM text is.
#[derive(Clone)]
#[non_exhaustive]
pub enum PemSource {
    /// In this file, which is read once, when a listener is made.
    File(PathBuf),
    /// Here.
    Text(Vec<u8>),
}

impl ReverseOptions {
    /// The defaults, with this certificate and its private key.
    pub fn new(certificate_key: PemSource) -> Self {
        Self {
            certificate_key,
            certificate_key_password: None,
            tokens: Tokens::new(),
            authorities: None,
            keep_alive: Duration::from_secs(10),
            wanted: 4,
            limits: IdleTunnelOptions::default(),
            handler: None,
        }
    }

    /// Calls `handler` for every event. It runs in the listener's tasks: it must be quick, and not block. Its panics are caught and go no
    /// further.
    pub fn on_event(mut self, handler: impl Fn(&ReverseEvent) + Send + Sync + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }
}

impl fmt::Debug for ReverseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReverseOptions")
            .field("certificate_key", &self.certificate_key)
            .field("tokens", &self.tokens)
            .field("authorities", &self.authorities)
            .field("keep_alive", &self.keep_alive)
            .field("wanted", &self.wanted)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Shows a file's name, and nothing of a text, which may hold a key.
impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(..)"),
        }
    }
}
