//! Why the answers of DNS cannot be used as a seed list.

use alloc::string::String;

use thiserror::Error;

use crate::error_text::readable_debug;
use crate::options::{ConnectionStringError, Shown};
use crate::pool::Cause;

/// A `mongodb+srv` connection string leads to no servers, so no client is made.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SeedListError {
    /// The SRV records were not found out (DNS-5).
    #[error(
        "the connection string gave no hosts, because the SRV records of {name} could not be looked up: {cause}; see whether DNS \
        can be reached and the name is right"
    )]
    Srv {
        /// What was looked up.
        name: String,
        /// Why it failed.
        cause: Cause,
    },
    /// There is no SRV record (DNS-5).
    #[error(
        "the connection string gave no hosts, because {name} has no SRV records; see whether the name is right, or write \
        mongodb:// and the hosts"
    )]
    NoSrvRecord {
        /// What was looked up.
        name: String,
    },
    /// An SRV record names a host that is not trusted, so none of them is (DNS-4).
    #[error("an SRV record of {name} cannot be used: {error}; correct the record, or write mongodb:// and the hosts")]
    Host {
        /// What was looked up.
        name: String,
        /// The host, and what is wrong with it.
        error: HostError,
    },
    /// Whether there is a TXT record was not found out.
    #[error(
        "the TXT record of {name}, which may hold options, could not be looked up: {cause}; see whether DNS can be reached"
    )]
    Txt {
        /// What was looked up.
        name: String,
        /// Why it failed.
        cause: Cause,
    },
    /// There is more than one TXT record (DNS-7).
    #[error("{name} has {count} TXT records; keep the one with options")]
    SeveralTxtRecords {
        /// What was looked up.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// The TXT record is no text.
    #[error("the TXT record of {name} is not UTF-8; write options, name=value")]
    TxtNotText {
        /// What was looked up.
        name: String,
    },
    /// The TXT record cannot be read as options (DNS-8).
    #[error("the TXT record of {name} cannot be used: {error}")]
    TxtOptions {
        /// What was looked up.
        name: String,
        /// What is wrong.
        error: ConnectionStringError,
    },
    /// The options of the connection string, of the TXT record and the hosts exclude each other (DNS-10).
    #[error("the options of the connection string and of DNS do not go together: {0}")]
    Options(ConnectionStringError),
}

readable_debug!(SeedListError);

/// A host in an SRV record is not trusted.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// It belongs to another domain: an answer of DNS must not lead clients, and their passwords, anywhere it likes (DNS-4).
    #[error("the host {host} is not below the domain {domain} of the connection string")]
    OtherDomain {
        /// The host.
        host: Shown,
        /// The domain.
        domain: String,
    },
    /// The application does not allow it (DNS-20).
    #[error("the host {host} is not allowed by this application")]
    NotAllowed {
        /// The host.
        host: Shown,
    },
    /// No host has this name.
    #[error("{host} is not the name of a host")]
    Name {
        /// The name.
        host: Shown,
    },
    /// The port is 0.
    #[error("the port of {host} is 0")]
    Port {
        /// The host.
        host: Shown,
    },
}

readable_debug!(HostError);
