//! Certificates for the tests: an authority, and what it signs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::pkcs5::pbes2;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256, SignatureAlgorithm, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// Signs certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// When a certificate is valid.
#[derive(Clone, Copy)]
pub(crate) enum Validity {
    Now,
    Over,
    NotBegun,
}

impl Authority {
    /// One whose name no other has.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        Self::named(&format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn named(common_name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's own certificate, as a server may show it by mistake.
    pub(crate) fn as_identity(&self) -> Identity {
        let key = KeyPair::try_from(self.issuer.key().serialized_der()).unwrap();
        Identity { certificate: self.issuer.der().clone(), key }
    }

    /// A server's certificate for `hosts`, valid now.
    pub(crate) fn server(&self, hosts: &[&str]) -> Identity {
        self.sign(hosts, Validity::Now, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn server_valid(&self, hosts: &[&str], validity: Validity) -> Identity {
        self.sign(hosts, validity, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn client(&self) -> Identity {
        self.sign(&[], Validity::Now, &PKCS_ECDSA_P256_SHA256)
    }

    pub(crate) fn client_with(&self, algorithm: &'static SignatureAlgorithm) -> Identity {
        self.sign(&[], Validity::Now, algorithm)
    }

    fn sign(&self, hosts: &[&str], validity: Validity, algorithm: &'static SignatureAlgorithm) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = name("somebody");
        match validity {
            Validity::Now => {}
            Validity::Over => params.not_after = date_time_ymd(2020, 1, 1),
            Validity::NotBegun => params.not_before = date_time_ymd(3000, 1, 1),
        }
        let key = KeyPair::generate_for(algorithm).unwrap();
        Identity { certificate: params.signed_by(&key, &self.issuer).unwrap().into(), key }
    }

    /// Asks for client certificates and accepts the authority's, or `demands` them.
    pub(crate) fn client_verifier(&self, demands: bool) -> Arc<dyn ClientCertVerifier> {
        let mut authorities = RootCertStore::empty();
        authorities.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
        if demands { builder.build().unwrap() } else { builder.allow_unauthenticated().build().unwrap() }
    }
}

impl Identity {
    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    pub(crate) fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    pub(crate) fn pkcs8_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.serialized_der())
    }

    /// The key by itself, as older files hold it: `label` is that of its kind.
    pub(crate) fn bare_key_pem(&self, label: &str) -> String {
        pem(label, PrivateKeyInfoRef::try_from(self.key.serialized_der()).unwrap().private_key.as_bytes())
    }

    /// The key encrypted as OpenSSL 3 does it.
    pub(crate) fn encrypted_pem(&self, password: &str) -> String {
        let (salt, iv) = ([7; 16], [9; 16]);
        let params = pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(2_048, &salt, iv).unwrap();
        let key = PrivateKeyInfoRef::try_from(self.key.serialized_der()).unwrap();
        pem("ENCRYPTED PRIVATE KEY", key.encrypt_with_params(params, password).unwrap().as_bytes())
    }
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<&str> = base64.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
