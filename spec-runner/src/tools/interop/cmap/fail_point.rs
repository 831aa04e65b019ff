//! A fail point that a server has for as long as the value lives.

use cmap_core::wire::bson::{RawBson, RawDocumentBuf, rawdoc};

use super::client::Client;
use super::expect::Mismatch;
use super::servers::Servers;

/// Switches the fail point off when it is dropped.
#[derive(Debug)]
pub(super) struct FailPoint(Client);

impl FailPoint {
    /// The server `server` has the fail point from now on. It is set by a connection of its own.
    pub(super) fn set(
        servers: &Servers,
        server: &str,
        mode: impl Into<RawBson>,
        data: RawDocumentBuf,
    ) -> Result<Self, Mismatch> {
        let mut client = servers.connect(server, "", &[])??;
        client.run("admin", &rawdoc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data })?;
        Ok(Self(client))
    }
}

impl Drop for FailPoint {
    fn drop(&mut self) {
        // The check fails anyway if the server is gone.
        let _ = self.0.run("admin", &rawdoc! { "configureFailPoint": "failCommand", "mode": "off" });
    }
}

/// The fail point strikes this often.
pub(super) fn times(count: i32) -> RawDocumentBuf {
    rawdoc! { "times": count }
}
