//! Whether options go together: which exclude or need each other (URI-10, LB-2, SEL-23, TLS-1, and the rules of write concerns,
//! of SRV records and of SOCKS5).
//!
//! An option that is present excludes another one whatever their values, unless the rule names the value.

use super::client::ClientOptions;
use super::concern::W;
use super::credential::Credential;
use super::error::ConnectionStringError;
use super::keys;
use super::secret::Secret;
use super::value::has_nul;
use crate::address::ServerAddress;

/// The longest user name and password that a proxy takes (RFC 1929), in bytes.
const MAX_PROXY_LOGIN: usize = 255;

impl ClientOptions {
    /// Whether these options go together, for options that were changed in code.
    ///
    /// Beyond what [`ClientOptions::parse`] checks, the credential must be complete: a password that the connection
    /// string left out must have been filled in (AUTH-18). No text may have a NUL, and every value must be within the
    /// bounds of its option.
    pub fn check(&self) -> Result<(), ConnectionStringError> {
        if self.hosts.is_empty() {
            let is_srv = self.srv.host.is_some();
            return Err(if is_srv { ConnectionStringError::NotLookedUp } else { ConnectionStringError::NoHost });
        }
        if self.database.as_deref().is_some_and(has_nul) {
            return Err(ConnectionStringError::DatabaseCharacter { character: '\0' });
        }
        if let Some((option, _)) = self.set_by_user().find(|(_, value)| value.has_nul()) {
            return Err(ConnectionStringError::NulInOption { option });
        }
        check(self)?;
        self.pool.limits()?;
        keys::check_values(self)?;
        self.credential.as_ref().map_or(Ok(()), Credential::check)?;
        Ok(())
    }

    /// Whether the options go together with the hosts that were found for them (DNS-10).
    pub(crate) fn check_hosts(&self) -> Result<(), ConnectionStringError> {
        check(self)
    }
}

/// Checks `options`.
pub(super) fn check(options: &ClientOptions) -> Result<(), ConnectionStringError> {
    let srv = options.srv.host.is_some();
    check_topology(options, srv)?;
    check_srv(options, srv)?;
    options.read_preference.check()?;
    check_write_concern(options)?;
    check_tls(options)?;
    check_proxy(options)
}

fn conflict(
    is: bool,
    first: &'static str,
    second: &'static str,
    rule: &'static str,
    advice: &'static str,
) -> Result<(), ConnectionStringError> {
    if is { Err(ConnectionStringError::Conflict { first, second, rule, advice }) } else { Ok(()) }
}

/// URI-10 and LB-2.
fn check_topology(options: &ClientOptions, srv: bool) -> Result<(), ConnectionStringError> {
    let several = ServerAddress::distinct(options.hosts.iter().cloned()).len() > 1;
    if options.direct_connection == Some(true) {
        let direct = "directConnection=true";
        conflict(several, direct, "several hosts", "URI-10", "name one host, or remove it")?;
        conflict(srv, direct, "mongodb+srv://", "URI-10", "write mongodb:// and one host, or remove it")?;
    }
    if options.is_load_balanced() {
        let balanced = "loadBalanced=true";
        conflict(several, balanced, "several hosts", "LB-2", "name the load balancer alone")?;
        conflict(options.replica_set.is_some(), balanced, "replicaSet", "LB-2", "remove replicaSet")?;
        let direct = options.direct_connection == Some(true);
        conflict(direct, balanced, "directConnection=true", "LB-2", "remove one of them")?;
        let limited = options.srv.max_hosts.is_some_and(|most| most > 0);
        conflict(limited, balanced, "srvMaxHosts", "LB-2", "remove srvMaxHosts")?;
    }
    Ok(())
}

fn check_srv(options: &ClientOptions, srv: bool) -> Result<(), ConnectionStringError> {
    const RULE: &str = "Initial DNS Seedlist Discovery, URI Validation";
    const ADVICE: &str = "write mongodb+srv://, or remove it";
    options.srv.allowed_domain()?;
    if srv {
        let limited = options.srv.max_hosts.is_some_and(|most| most > 0);
        return conflict(
            limited && options.replica_set.is_some(),
            "srvMaxHosts",
            "replicaSet",
            RULE,
            "remove one of them",
        );
    }
    conflict(options.srv.max_hosts.is_some(), "srvMaxHosts", "mongodb://", RULE, ADVICE)?;
    conflict(options.srv.allowed_hosts_suffix.is_some(), "srvAllowedHostsSuffix", "mongodb://", RULE, ADVICE)?;
    conflict(options.srv.service_name.is_some(), "srvServiceName", "mongodb://", RULE, ADVICE)
}

fn check_write_concern(options: &ClientOptions) -> Result<(), ConnectionStringError> {
    let concern = &options.write_concern;
    let contradicts = concern.w == Some(W::Members(0)) && concern.journal == Some(true);
    let rule = "Read and Write Concern, Inconsistent WriteConcern";
    conflict(contradicts, "w=0", "journal=true", rule, "nobody waits for the journal; remove one of them")
}

/// TLS-1.
fn check_tls(options: &ClientOptions) -> Result<(), ConnectionStringError> {
    let tls = &options.tls;
    let insecure = ("tlsInsecure", tls.insecure);
    let certificates = ("tlsAllowInvalidCertificates", tls.allow_invalid_certificates);
    let hostnames = ("tlsAllowInvalidHostnames", tls.allow_invalid_hostnames);
    let endpoint = ("tlsDisableOCSPEndpointCheck", tls.disable_ocsp_endpoint_check);
    let revocation = ("tlsDisableCertificateRevocationCheck", tls.disable_certificate_revocation_check);
    for (first, second) in [
        (insecure, certificates),
        (insecure, hostnames),
        (insecure, endpoint),
        (insecure, revocation),
        (certificates, endpoint),
        (certificates, revocation),
        (endpoint, revocation),
    ] {
        conflict(first.1.is_some() && second.1.is_some(), first.0, second.0, "TLS-1", "remove one of them")?;
    }
    Ok(())
}

/// SOCKS-1. An empty text counts as none.
fn check_proxy(options: &ClientOptions) -> Result<(), ConnectionStringError> {
    let rule = "SOCKS-1";
    let proxy = &options.proxy;
    let is_set = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    let host = ("proxyHost", is_set(proxy.host.as_deref()));
    let username = ("proxyUsername", is_set(proxy.username.as_deref()));
    let password = ("proxyPassword", is_set(proxy.password.as_ref().map(Secret::expose)));
    for (option, needed) in [
        (("proxyPort", proxy.port.is_some()), host),
        (username, host),
        (password, host),
        (username, password),
        (password, username),
    ] {
        if option.1 && !needed.1 {
            return Err(ConnectionStringError::Missing { option: option.0, needed: needed.0, rule });
        }
    }
    let too_long = |text: Option<&str>| text.is_some_and(|text| text.len() > MAX_PROXY_LOGIN);
    for (option, is) in [
        ("proxyUsername", too_long(proxy.username.as_deref())),
        ("proxyPassword", too_long(proxy.password.as_ref().map(Secret::expose))),
    ] {
        if is {
            return Err(ConnectionStringError::Value { option, expected: "at most 255 bytes".into() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use core::time::Duration;

    use super::*;
    use crate::options::{CredentialError, ReadMode, ReadPreference};

    fn error(text: &str) -> String {
        ClientOptions::parse(text).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_excludes_each_other_is_an_error() {
        for (text, expected) in [
            ("mongodb://a,b/?directConnection=true", "directConnection=true cannot be used with several hosts"),
            ("mongodb+srv://a/?directConnection=true", "directConnection=true cannot be used with mongodb+srv://"),
            ("mongodb://a,b/?loadBalanced=true", "loadBalanced=true cannot be used with several hosts"),
            ("mongodb://a/?loadBalanced=true&replicaSet=r", "loadBalanced=true cannot be used with replicaSet"),
            ("mongodb+srv://a/?loadBalanced=true&srvMaxHosts=1", "loadBalanced=true cannot be used with srvMaxHosts"),
            ("mongodb+srv://a/?replicaSet=r&srvMaxHosts=1", "srvMaxHosts cannot be used with replicaSet"),
            ("mongodb://a/?srvMaxHosts=0", "srvMaxHosts cannot be used with mongodb://"),
            ("mongodb://a/?srvAllowedHostsSuffix=.b.c", "srvAllowedHostsSuffix cannot be used with mongodb://"),
            (
                "mongodb+srv://a/?srvAllowedHostsSuffix=.c",
                "srvAllowedHostsSuffix has a value that it cannot have; set a",
            ),
            (
                "mongodb://a/?tlsInsecure=false&tlsAllowInvalidHostnames=false",
                "tlsInsecure cannot be used with tlsAllowInvalidHostnames; remove one of them",
            ),
            ("mongodb://a/?readPreferenceTags=dc:ny", "readPreferenceTags choose among secondaries, but"),
            ("mongodb://a/?readPreference=primary&maxStalenessSeconds=90", "limits the lag of secondaries, but"),
            ("mongodb://a/?w=0&journal=true", "w=0 cannot be used with journal=true; nobody waits for the journal"),
            ("mongodb://a/?proxyPort=1", "proxyPort needs proxyHost"),
            ("mongodb://a/?proxyHost=p&proxyUsername=u", "proxyUsername needs proxyPassword"),
            ("mongodb://a/?proxyHost=p&proxyUsername=u&proxyPassword=", "proxyUsername needs proxyPassword"),
            ("mongodb://a/?proxyHost=&proxyPort=1", "proxyPort needs proxyHost"),
            ("mongodb://a/?proxyHost=p&proxyHost=q", "option proxyHost is there more than once"),
        ] {
            assert!(error(text).contains(expected), "{text}: {}", error(text));
        }
    }

    #[test]
    fn what_goes_together_is_no_error() {
        for text in [
            "mongodb://a,A:27017/?directConnection=true",
            "mongodb://a,b/?directConnection=false",
            "mongodb://a/?loadBalanced=true&directConnection=false",
            "mongodb://a,b/?loadBalanced=false&replicaSet=r",
            "mongodb://a/?tlsAllowInvalidCertificates=true&tlsAllowInvalidHostnames=true",
            "mongodb://a/?w=0&journal=false",
            "mongodb://a/?w=1&journal=true",
            "mongodb://a/?maxStalenessSeconds=-1&readPreferenceTags=",
            "mongodb://a/?readPreference=secondary&maxStalenessSeconds=1&readPreferenceTags=dc:ny",
            "mongodb://a/?proxyHost=p&proxyPort=1&proxyUsername=u&proxyPassword=w",
            "mongodb://a/?proxyHost=p&proxyUsername=&proxyPassword=",
            "mongodb://a/?proxyHost=&proxyUsername=&proxyPassword=",
        ] {
            assert_eq!(error(text), "", "{text}");
        }
    }

    #[test]
    fn options_changed_in_code_are_checked_again() {
        let (mut options, _) = ClientOptions::parse("mongodb://alice@a/?loadBalanced=true").unwrap();

        assert!(matches!(options.check(), Err(ConnectionStringError::Credential(_))));
        if let Some(credential) = &mut options.credential {
            credential.password = Some("hunter2".into());
        }
        assert_eq!(options.check(), Ok(()));
        options.direct_connection = Some(true);
        assert!(matches!(options.check(), Err(ConnectionStringError::Conflict { .. })));
        options.hosts.clear();
        assert_eq!(options.check(), Err(ConnectionStringError::NoHost));
    }

    #[test]
    fn a_value_set_in_code_has_the_bounds_of_its_option() {
        type Change = fn(&mut ClientOptions);
        let changes: [(&str, &str, Change); 6] = [
            ("appname", "at most 128 bytes", |options| options.app_name = Some("a".repeat(129))),
            ("heartbeatFrequencyMS", "an integer from 500 to 2147483647", |options| {
                options.heartbeat_frequency = Some(Duration::from_millis(1));
            }),
            ("zlibCompressionLevel", "an integer from -1 to 9", |options| options.zlib_compression_level = Some(99)),
            ("serverSelectionTimeoutMS", "an integer from 1 to 2147483647", |options| {
                options.server_selection_timeout = Some(Duration::from_micros(1));
            }),
            ("proxyPort", "an integer from 1 to 65535", |options| {
                (options.proxy.host, options.proxy.port) = (Some("p".into()), Some(0));
            }),
            ("proxyPassword", "at most 255 bytes", |options| {
                options.proxy.host = Some("p".into());
                options.proxy.username = Some("u".into());
                options.proxy.password = Some("a".repeat(256).into());
            }),
        ];
        for (option, expected, change) in changes {
            let (mut options, _) = ClientOptions::parse("mongodb://a").unwrap();
            change(&mut options);
            assert_eq!(options.check(), Err(ConnectionStringError::Value { option, expected: expected.into() }));
        }
    }

    #[test]
    fn a_number_set_in_code_may_have_more_than_32_bits_uri_11() {
        let (mut options, _) = ClientOptions::parse("mongodb://a").unwrap();
        options.pool.max_pool_size = Some(u32::MAX);
        options.server_selection_timeout = Some(Duration::MAX);
        options.pool.max_idle_time = Some(Duration::MAX);
        options.timeout = Some(Duration::MAX);

        assert_eq!(options.check(), Ok(()));
    }

    #[test]
    fn a_load_balancer_that_code_names_for_the_pool_alone_is_one_lb_2() {
        let (mut options, _) = ClientOptions::parse("mongodb://a,b").unwrap();
        options.pool.load_balanced = true;

        assert!(matches!(options.check(), Err(ConnectionStringError::Conflict { first: "loadBalanced=true", .. })));
    }

    #[test]
    fn a_text_set_in_code_has_no_nul() {
        type Change = fn(&mut ClientOptions, Option<String>);
        let nul = || Some("a\0b".into());
        let changes: [(&str, Change); 6] = [
            ("appname", |options, text| options.app_name = text),
            ("replicaSet", |options, text| options.replica_set = text),
            ("readConcernLevel", |options, text| options.read_concern_level = text),
            ("w", |options, text| options.write_concern.w = text.map(W::Named)),
            ("tlsCAFile", |options, text| options.tls.ca_file = text),
            ("readPreferenceTags", |options, text| {
                let tag = text.map(|text| ("dc".into(), text));
                let secondary = ReadPreference::new(ReadMode::Secondary);
                options.read_preference = secondary.with_tag_sets(Vec::from([tag.into_iter().collect()])).unwrap();
            }),
        ];
        for (option, change) in changes {
            let (mut options, _) = ClientOptions::parse("mongodb://a").unwrap();
            change(&mut options, nul());
            assert_eq!(options.check(), Err(ConnectionStringError::NulInOption { option }));
        }

        let (mut options, _) = ClientOptions::parse("mongodb://a").unwrap();
        options.database = nul();
        assert_eq!(options.check(), Err(ConnectionStringError::DatabaseCharacter { character: '\0' }));
        options.database = None;
        options.credential = Some(Credential::new("alice", "hunter2".into(), "a\0b"));
        assert_eq!(options.check(), Err(CredentialError::NulInSource.into()));
    }
}
