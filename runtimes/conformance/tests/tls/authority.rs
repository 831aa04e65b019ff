//! Authorities for the tests: a failure here fails the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cmap_test_server::certificates::{self, KeyKind};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

pub(crate) use cmap_test_server::certificates::{Identity, Validity, self_signed};

/// Signs certificates.
pub(crate) struct Authority(certificates::Authority);

impl Authority {
    /// An authority whose name no other has.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        Self::named(&format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn named(common_name: &str) -> Self {
        Self(certificates::Authority::new(common_name).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// The authority's own certificate, as a server may show it by mistake.
    pub(crate) fn as_identity(&self) -> Identity {
        self.0.as_identity().unwrap()
    }

    /// A server's certificate for `hosts`, valid now.
    pub(crate) fn server(&self, hosts: &[&str]) -> Identity {
        self.server_valid(hosts, Validity::Now)
    }

    pub(crate) fn server_valid(&self, hosts: &[&str], validity: Validity) -> Identity {
        self.0.server(hosts, validity).unwrap()
    }

    pub(crate) fn client(&self) -> Identity {
        self.client_with(KeyKind::P256)
    }

    pub(crate) fn client_with(&self, key: KeyKind) -> Identity {
        self.0.client("somebody", key).unwrap()
    }

    /// Asks for client certificates and accepts the authority's, or `demands` them.
    pub(crate) fn client_verifier(&self, demands: bool) -> Arc<dyn ClientCertVerifier> {
        let mut authorities = RootCertStore::empty();
        authorities.add(self.0.certificate()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
        if demands { builder.build().unwrap() } else { builder.allow_unauthenticated().build().unwrap() }
    }
}
