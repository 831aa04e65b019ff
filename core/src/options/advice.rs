//! Warnings about options that are valid and give up a protection, and about hosts that are repeated.
//!
//! They are kept apart from the warnings of a connection string, because the specification says which options have one
//! of those.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::client::ClientOptions;
use super::mechanism::Mechanism;
use super::warning::Warning;
use crate::address::ServerAddress;

/// The risk of a server that has not proven who it is.
const ANYBODY: &str = "anybody between this client and the server can read and change everything";
/// The risk of a certificate whose revocation is not looked up.
const REVOKED: &str = "a certificate that was revoked, perhaps because its key was stolen, is accepted";

impl ClientOptions {
    /// A warning for each option that gives up a protection: every check of the server's certificate that is relaxed
    /// (TLS-4), and a password that travels in the clear (AUTH-20); and for each host that code has repeated. Each belongs in
    /// the log at level WARN.
    pub fn advice(&self) -> Vec<Warning> {
        let tls = &self.tls;
        let named = "remove it, and connect by a name in the server's certificate";
        let trusted = "remove it, and name the authority of the server's certificate by tlsCAFile";
        let relaxed = [
            ("tlsInsecure", tls.insecure, ANYBODY, trusted),
            ("tlsAllowInvalidCertificates", tls.allow_invalid_certificates, ANYBODY, trusted),
            ("tlsAllowInvalidHostnames", tls.allow_invalid_hostnames, ANYBODY, named),
            ("tlsDisableOCSPEndpointCheck", tls.disable_ocsp_endpoint_check, REVOKED, "remove it"),
            ("tlsDisableCertificateRevocationCheck", tls.disable_certificate_revocation_check, REVOKED, "remove it"),
        ];
        let on = relaxed.into_iter().filter(|(_, is_on, ..)| *is_on == Some(true));
        let mut advice: Vec<_> =
            on.map(|(option, _, risk, remedy)| Warning::RelaxedTls { option, risk, remedy }).collect();
        if self.shows_password() {
            advice.push(Warning::PasswordInClear);
        }
        advice.extend(repeated_hosts(&self.hosts));
        advice
    }

    /// Whether the password itself is sent, over a network, without TLS. A Unix socket does not leave the machine.
    fn shows_password(&self) -> bool {
        let mechanism = self.credential.as_ref().and_then(|credential| credential.mechanism);
        let is_remote =
            self.srv.host.is_some() || self.hosts.iter().any(|host| matches!(host, ServerAddress::Tcp { .. }));
        mechanism == Some(Mechanism::Plain) && is_remote && !self.tls.is_enabled()
    }
}

/// A warning for each of `hosts` that stands there already.
pub(super) fn repeated_hosts(hosts: &[ServerAddress]) -> Vec<Warning> {
    let mut positions = BTreeMap::new();
    let numbered = hosts.iter().flat_map(|host| ServerAddress::distinct([host.clone()])).zip(1..);
    let repeated = numbered.filter_map(|(host, position)| {
        let first = *positions.entry(host).or_insert(position);
        (first < position).then_some(Warning::RepeatedHost { position, first })
    });
    repeated.collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    fn advice(uri: &str) -> Vec<String> {
        let (options, warnings) = ClientOptions::parse(uri).unwrap();
        assert_eq!(warnings, [], "{uri}");
        options.advice().iter().map(Warning::to_string).collect()
    }

    #[test]
    fn every_check_of_a_certificate_that_is_relaxed_is_warned_of_tls_4() {
        for (option, risk) in [
            ("tlsInsecure", "can read and change everything"),
            ("tlsAllowInvalidCertificates", "can read and change everything"),
            ("tlsAllowInvalidHostnames", "can read and change everything"),
            ("tlsDisableOCSPEndpointCheck", "was revoked"),
            ("tlsDisableCertificateRevocationCheck", "was revoked"),
        ] {
            let advice_of = |value| advice(&alloc::format!("mongodb://h/?{option}={value}"));

            let [warning] = &advice_of("true")[..] else { panic!("{option}") };
            assert!(warning.starts_with(&alloc::format!("option {option} is on, so ")), "{warning}");
            assert!(warning.contains(risk) && warning.contains("; remove it"), "{warning}");
            assert_eq!(advice_of("false"), [""; 0], "{option}");
        }
    }

    #[test]
    fn several_relaxed_checks_are_each_warned_of() {
        let uri = "mongodb://h/?tls=true&tlsAllowInvalidCertificates=true&tlsAllowInvalidHostnames=true";

        assert_eq!(advice(uri).len(), 2);
    }

    #[test]
    fn a_password_in_the_clear_is_warned_of_auth_20() {
        for uri in ["mongodb://u:p@h/?authMechanism=PLAIN", "mongodb://u:p@h/?authMechanism=PLAIN&tls=false"] {
            let [warning] = &advice(uri)[..] else { panic!("{uri}") };
            assert!(
                warning.contains("everybody on the way to the server") && warning.contains("tls=true"),
                "{warning}"
            );
        }
    }

    #[test]
    fn what_is_protected_is_not_warned_of() {
        for uri in [
            "mongodb://h",
            "mongodb://u:p@h/",
            "mongodb://u:p@h/?authMechanism=PLAIN&tls=true",
            "mongodb://u:p@h/?authMechanism=PLAIN&tlsCAFile=ca.pem",
            "mongodb://u:p@%2Ftmp%2Fmongodb.sock/?authMechanism=PLAIN",
            "mongodb://u:p@h/?authMechanism=SCRAM-SHA-256",
        ] {
            assert_eq!(advice(uri), [""; 0], "{uri}");
        }
    }

    #[test]
    fn a_host_that_code_repeats_is_warned_of() {
        let (mut options, _) = ClientOptions::parse("mongodb://b,a").unwrap();
        options.hosts.push(ServerAddress::Tcp { host: "A".into(), port: 27017 });

        assert_eq!(options.advice(), [Warning::RepeatedHost { position: 3, first: 2 }]);
    }

    #[test]
    fn options_set_in_code_are_warned_of_alike() {
        let (mut options, _) = ClientOptions::parse("mongodb://h").unwrap();
        options.tls.insecure = Some(true);

        assert!(matches!(options.advice()[..], [Warning::RelaxedTls { option: "tlsInsecure", .. }]));
    }
}
