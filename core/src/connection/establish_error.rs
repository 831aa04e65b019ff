//! Why a connection did not become usable: the step that failed, and the side at fault.
//!
//! Both decide whether the error carries the backpressure labels (CMAP-50, CMAP-51), and with that whether the pool is
//! cleared (SDAM-7, SDAM-8).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error_text::{into_presentable, readable_debug};
use crate::topology_version::TopologyVersion;

/// The label of an error of an overloaded server.
pub const SYSTEM_OVERLOADED_ERROR: &str = "SystemOverloadedError";
/// The label of an error after which the operation may be tried again.
pub const RETRYABLE_ERROR: &str = "RetryableError";

/// The establishment of a connection failed.
#[derive(Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{phase} failed: {message}")]
#[non_exhaustive]
pub struct EstablishError {
    /// The step that failed.
    pub phase: Phase,
    /// The side at fault.
    pub fault: Fault,
    /// The error, for people: at most 8 KiB, without control characters. Never holds a password.
    pub message: String,
    /// Labels that the server put on its reply.
    pub server_labels: Vec<String>,
    /// The server's version of its topology, if its reply had it: an older version changes nothing (SDAM-6).
    pub topology_version: Option<TopologyVersion>,
    /// The name of the server's error code.
    pub code_name: Option<String>,
}

readable_debug!(EstablishError);

/// The steps of establishment (CMAP-23), in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Phase {
    /// Turning the host's name into addresses.
    Resolve,
    /// Reaching the server through a SOCKS5 proxy.
    Proxy,
    /// The TCP or Unix socket connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// The first hello.
    Hello,
    /// Authentication.
    Authenticate,
}

/// The side at fault, and how it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// Reading, writing or connecting failed; the peer hung up.
    Network,
    /// The peer did not answer in time.
    Timeout,
    /// The server answered with an error.
    Server {
        /// The server's error code, if it gave one.
        code: Option<i32>,
    },
    /// Anything else: a certificate, a host name, a reply that breaks the protocol.
    Other,
}

impl EstablishError {
    /// An error of `phase`, with no labels from the server. `message` may contain a server's text: its control
    /// characters are escaped, and it is cut at 8 KiB.
    pub fn new(phase: Phase, fault: Fault, message: impl Into<String>) -> Self {
        Self {
            phase,
            fault,
            message: into_presentable(message.into()),
            server_labels: Vec::new(),
            topology_version: None,
            code_name: None,
        }
    }

    /// Sets the labels that the server sent.
    #[must_use]
    pub fn with_server_labels(mut self, labels: Vec<String>) -> Self {
        self.server_labels = labels;
        self
    }

    /// Sets the name of the server's code.
    #[must_use]
    pub fn with_code_name(mut self, code_name: Option<String>) -> Self {
        self.code_name = code_name;
        self
    }

    /// Sets the server's version of its topology.
    #[must_use]
    pub fn with_topology_version(mut self, topology_version: Option<TopologyVersion>) -> Self {
        self.topology_version = topology_version;
        self
    }

    /// Whether the error has `label`: from the server, or because establishing failed in a way that an overloaded
    /// server causes (CMAP-50, CMAP-51).
    pub fn has_label(&self, label: &str) -> bool {
        let backpressure = label == SYSTEM_OVERLOADED_ERROR || label == RETRYABLE_ERROR;
        (backpressure && self.is_backpressure()) || self.server_labels.iter().any(|own| own == label)
    }

    /// CMAP-50: network errors and timeouts in TCP connect, TLS handshake I/O and hello. CMAP-51: nothing else.
    fn is_backpressure(&self) -> bool {
        matches!(self.phase, Phase::Connect | Phase::Tls | Phase::Hello)
            && matches!(self.fault, Fault::Network | Fault::Timeout)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the host name",
            Self::Proxy => "connecting through the proxy",
            Self::Connect => "connecting",
            Self::Tls => "the TLS handshake",
            Self::Hello => "the hello",
            Self::Authenticate => "authentication",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_failures_up_to_hello_carry_the_backpressure_labels() {
        for phase in [Phase::Connect, Phase::Tls, Phase::Hello] {
            for fault in [Fault::Network, Fault::Timeout] {
                let error = EstablishError::new(phase, fault, "gone");
                assert!(error.has_label(SYSTEM_OVERLOADED_ERROR) && error.has_label(RETRYABLE_ERROR), "{error:?}");
            }
        }
    }

    #[test]
    fn other_failures_carry_no_labels() {
        let network_elsewhere = [Phase::Resolve, Phase::Proxy, Phase::Authenticate]
            .map(|phase| EstablishError::new(phase, Fault::Network, "gone"));
        let no_network = [Fault::Other, Fault::Server { code: Some(91) }]
            .map(|fault| EstablishError::new(Phase::Tls, fault, "certificate"));

        for error in network_elsewhere.into_iter().chain(no_network) {
            assert!(!error.has_label(SYSTEM_OVERLOADED_ERROR) && !error.has_label(RETRYABLE_ERROR), "{error:?}");
        }
    }

    #[test]
    fn labels_of_the_server_are_kept() {
        let error = EstablishError::new(Phase::Hello, Fault::Server { code: Some(462) }, "too busy")
            .with_server_labels(alloc::vec![SYSTEM_OVERLOADED_ERROR.into()]);

        assert!(error.has_label(SYSTEM_OVERLOADED_ERROR));
        assert!(!error.has_label(RETRYABLE_ERROR));
    }
}
