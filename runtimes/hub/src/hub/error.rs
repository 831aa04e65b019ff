//! Why a hub cannot start, or take over a configuration.

use std::io;

use cmap_core::options::PoolOptionsError;
use cmap_tokio::reverse::BindError;
use cmap_tokio::{CheckOutError, ClientError, RotationError};
use thiserror::Error;

use super::tls::CertificateError;
use crate::config::ConfigError;

/// The hub cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen.
    #[error("cannot listen at {place}; is it in use, or not allowed?")]
    Listen {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The client upstream cannot be made.
    #[error("the client upstream cannot be made: {0}")]
    Client(#[from] ClientError),
    /// Another hub runs, and no server upstream lets this one in.
    #[error("this hub does not take over from the one that runs, since it cannot connect to upstream: {0}")]
    Upstream(CheckOutError),
    /// The hub that runs goes on, or was told to end.
    #[error("this hub does not take over from the one that runs, which says: {0}")]
    NotFollowed(String),
    /// Agents of servers cannot come in.
    #[error("upstream.reverse: {0}")]
    Reverse(#[from] BindError),
    /// The system has no random bits.
    #[error("the system gives no random bits; see why its source of them fails")]
    NoRandomBits,
    /// The system allows too few open files.
    #[error(
        "the system allows {limit} open files, of which the hub needs {reserve} for itself, and {least} for clients at least; raise the \
         limit (LimitNOFILE=, ulimit -n), or lower maxPoolSize in upstream.uri"
    )]
    Descriptors {
        /// How many it allows.
        limit: usize,
        /// How many the hub needs for itself.
        reserve: usize,
        /// How many clients there have to be room for.
        least: usize,
    },
    /// The metrics cannot be set up.
    #[error("the metrics cannot be set up: {0}")]
    Metrics(String),
}

/// There cannot be a listener.
pub(super) enum NoListener {
    Certificate(CertificateError),
    Bind { place: String, source: io::Error },
}

/// A configuration cannot be taken over while the hub runs. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// It has a mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An identity cannot be used.
    #[error("upstream.identity: {0}")]
    Identity(#[from] ClientError),
    /// The hub's own credential upstream is another one, which no server has taken.
    #[error("upstream.uri: {0}")]
    Credential(#[from] RotationError),
    /// The sizes of the pools upstream cannot be so.
    #[error("upstream.uri: {0}")]
    Sizes(#[from] PoolOptionsError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// It cannot listen.
    #[error("cannot listen at {place}; is it in use, or not allowed?")]
    Listen {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
}

impl From<CertificateError> for NoListener {
    fn from(error: CertificateError) -> Self {
        Self::Certificate(error)
    }
}

impl From<NoListener> for StartError {
    fn from(error: NoListener) -> Self {
        match error {
            NoListener::Certificate(error) => Self::Certificate(error),
            NoListener::Bind { place, source } => Self::Listen { place, source },
        }
    }
}

impl From<NoListener> for ReloadError {
    fn from(error: NoListener) -> Self {
        match error {
            NoListener::Certificate(error) => Self::Certificate(error),
            NoListener::Bind { place, source } => Self::Listen { place, source },
        }
    }
}
