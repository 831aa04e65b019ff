//! The addresses of the servers: their connection strings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;

use super::client::{Client, ClientError};
use super::expect::Mismatch;
use crate::tools::interop::servers::{Place, SRV_NAME};

/// The servers of the input, by name.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Servers(BTreeMap<String, Place>);

/// Options of a connection string.
pub(super) type Options<'a> = &'a [(&'a str, &'a str)];

impl Servers {
    /// A connection string. `login` is `user:password@`, percent-encoded, or empty.
    pub(super) fn uri(&self, server: &str, login: &str, options: Options<'_>) -> Result<String, Mismatch> {
        let place = self.0.get(server).ok_or_else(|| Mismatch::Other(format!("there is no server {server:?}")))?;
        let base = match place {
            Place::Started { address, .. } => format!("mongodb://{login}{address}/"),
            // It has its own login and options.
            Place::Named { uri } => return Ok(uri.clone()),
        };
        let options: Vec<_> = options.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        Ok(format!("{base}?{}", options.join("&")))
    }

    /// The connection string that leads to the server by DNS, and the DNS server to ask.
    pub(super) fn srv(&self, server: &str) -> Result<(String, SocketAddr), Mismatch> {
        let dns = match self.0.get(server) {
            Some(Place::Started { dns, .. }) => dns.parse().ok(),
            Some(Place::Named { .. }) | None => None,
        };
        let dns = dns.ok_or_else(|| Mismatch::Other(format!("{server:?} has no DNS server")))?;
        Ok((format!("mongodb+srv://{SRV_NAME}/?tls=false&timeoutMS=10000"), dns))
    }

    /// A connection to the server, by a connection string.
    pub(super) fn connect(
        &self,
        server: &str,
        login: &str,
        options: Options<'_>,
    ) -> Result<Result<Client, ClientError>, Mismatch> {
        self.uri(server, login, options).map(|uri| Client::connect(&uri))
    }

    /// A connection to the server "open".
    pub(super) fn open(&self) -> Result<Client, Mismatch> {
        Ok(self.connect("open", "", &[])??)
    }

    /// The path of one of the server's certificates.
    pub(super) fn certificate(&self, server: &str, file: &str) -> Result<String, Mismatch> {
        match self.0.get(server) {
            Some(Place::Started { certificates, .. }) => Ok(Path::new(certificates).join(file).display().to_string()),
            Some(Place::Named { .. }) | None => Err(Mismatch::Other(format!("{server:?} has no certificates"))),
        }
    }
}

/// Percent-encodes every character that is not safe everywhere in a connection string.
pub(super) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
