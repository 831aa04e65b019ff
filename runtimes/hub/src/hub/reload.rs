//! Takes over a configuration while the hub runs: all of it that can be, or nothing.

use std::path::PathBuf;
use std::sync::Arc;

use cmap_core::ErrorChain;
use serde_json::{Value, json};

use super::error::ReloadError;
use super::shared::Shared;
use super::tls::{Certificate, CertificateError};
use crate::config::{self, Config};

/// What has to change when a configuration does.
#[derive(Debug)]
pub(super) struct Reloader {
    /// The file of the configuration.
    pub(super) path: PathBuf,
    pub(super) shared: Arc<Shared>,
    pub(super) certificates: Vec<Arc<Certificate>>,
}

impl Reloader {
    /// Reads the file again, and takes it over; the answer to who has asked for it.
    pub(super) async fn read_again(self: &Arc<Self>) -> Result<Value, String> {
        let this = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let config = config::read(&this.path).map_err(|error| ErrorChain(&error).to_string())?;
            this.reload(config).map_err(|error| ErrorChain(&error).to_string())
        });
        let done = done.await.map_err(|error| error.to_string()).and_then(|done| done);
        done.map(|()| json!({ "reloaded": true })).map_err(|error| format!("the old configuration stays: {error}"))
    }

    /// Takes over a configuration.
    pub(super) fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let renewed = self.certificates.iter().map(|certificate| Ok((certificate, certificate.read_again()?)));
        let renewed = renewed.collect::<Result<Vec<_>, CertificateError>>()?;
        self.shared.reload(config)?;
        renewed.into_iter().for_each(|(certificate, acceptor)| certificate.replace(acceptor));
        Ok(())
    }
}
