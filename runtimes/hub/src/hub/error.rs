//! Why a hub cannot start, or take over a configuration.

use std::io;
use std::sync::Arc;

use cmap_tokio::ClientError;
use cmap_tokio::reverse::BindError;
use thiserror::Error;

use super::tls::CertificateError;

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

/// A configuration cannot be taken over while the hub runs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A user would have an identity that is not known upstream.
    #[error("user {user:?} has the identity {identity:?} upstream, which is new; start the hub again to use it")]
    NewIdentity {
        /// The user.
        user: Arc<str>,
        /// The identity.
        identity: Arc<str>,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}
