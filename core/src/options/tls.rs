//! Options of TLS (TLS-1 to TLS-4).

use alloc::string::String;

use super::secret::Secret;

/// Options of TLS; `None` = not set. Everything that is not set is secure.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TlsOptions {
    /// `tls`, or its other name `ssl`: whether connections use TLS. See [`TlsOptions::is_enabled`] for the default.
    pub enabled: Option<bool>,
    /// `tlsCAFile`: the path of a PEM file with the certificate authorities to trust instead of the system's.
    pub ca_file: Option<String>,
    /// `tlsCertificateKeyFile`: the path of a PEM file with the client's certificate and its private key (TLS-4).
    pub certificate_key_file: Option<String>,
    /// `tlsCertificateKeyFilePassword`: the password of that private key.
    pub certificate_key_file_password: Option<Secret>,
    /// `tlsAllowInvalidCertificates`: accept any certificate.
    pub allow_invalid_certificates: Option<bool>,
    /// `tlsAllowInvalidHostnames`: accept a certificate for another host.
    pub allow_invalid_hostnames: Option<bool>,
    /// `tlsInsecure`: relax every check; today those of [`TlsOptions::accepts_invalid_certificates`] and
    /// [`TlsOptions::accepts_invalid_hostnames`], and revocation.
    pub insecure: Option<bool>,
    /// `tlsDisableOCSPEndpointCheck`: don't ask the certificate's issuer whether it was revoked.
    pub disable_ocsp_endpoint_check: Option<bool>,
    /// `tlsDisableCertificateRevocationCheck`: don't look for revocation at all.
    pub disable_certificate_revocation_check: Option<bool>,
}

impl TlsOptions {
    /// Whether connections use TLS: as `tls` says, else if and only if any other option of TLS is set.
    pub fn is_enabled(&self) -> bool {
        let any_other = self.ca_file.is_some()
            || self.certificate_key_file.is_some()
            || self.certificate_key_file_password.is_some()
            || self.allow_invalid_certificates.is_some()
            || self.allow_invalid_hostnames.is_some()
            || self.insecure.is_some()
            || self.disable_ocsp_endpoint_check.is_some()
            || self.disable_certificate_revocation_check.is_some();
        self.enabled.unwrap_or(any_other)
    }

    /// Whether any certificate is accepted.
    pub fn accepts_invalid_certificates(&self) -> bool {
        self.insecure == Some(true) || self.allow_invalid_certificates == Some(true)
    }

    /// Whether a certificate for another host is accepted.
    pub fn accepts_invalid_hostnames(&self) -> bool {
        self.insecure == Some(true) || self.allow_invalid_hostnames == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_on_where_another_option_of_it_is_set() {
        let ca_file = TlsOptions { ca_file: Some("ca.pem".into()), ..TlsOptions::default() };

        assert!(!TlsOptions::default().is_enabled());
        assert!(ca_file.is_enabled());
        assert!(!TlsOptions { enabled: Some(false), ..ca_file }.is_enabled());
    }

    #[test]
    fn nothing_is_relaxed_by_default() {
        let default = TlsOptions::default();
        let insecure = TlsOptions { insecure: Some(true), ..TlsOptions::default() };

        assert!(!default.accepts_invalid_certificates() && !default.accepts_invalid_hostnames());
        assert!(insecure.accepts_invalid_certificates() && insecure.accepts_invalid_hostnames());
    }
}
