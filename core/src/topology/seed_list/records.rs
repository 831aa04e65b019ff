//! The answers of DNS, as far as they matter here.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// An SRV record: where a server is. Its priority and weight have no meaning here (DNS-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrvRecord {
    /// The name of the host, with or without the final dot.
    pub target: String,
    /// The port.
    pub port: u16,
    /// How long the record may be kept.
    pub time_to_live: Duration,
}

/// A TXT record: options of the connection string, in pieces of at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxtRecord {
    /// The pieces, which belong together without anything in between (DNS-7).
    pub strings: Vec<Vec<u8>>,
}

impl SrvRecord {
    /// A record with this content.
    pub fn new(target: impl Into<String>, port: u16, time_to_live: Duration) -> Self {
        Self { target: target.into(), port, time_to_live }
    }

    /// The name of the host, in lower case and without the final dot.
    pub fn host(&self) -> String {
        self.target.strip_suffix('.').unwrap_or(&self.target).to_ascii_lowercase()
    }
}

impl TxtRecord {
    /// A record of one piece.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { strings: Vec::from([text.into()]) }
    }
}
