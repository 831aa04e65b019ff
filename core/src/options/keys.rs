//! The table of options: one row for each, with its name, the kind of its value, its bounds and its field.

use alloc::vec::Vec;

use super::client::{ClientOptions, ServerMonitoringMode};
use super::error::ConnectionStringError;
use super::mechanism::{Mechanism, properties};
use super::option_value::{OptionValue, Show};
use super::read_preference::ReadMode;
use super::value::{
    Expected, Reading, boolean, choice, compressors, count, integer, long_millis, max_staleness, millis, name, secret,
    service_name, short_text, tag_set, text, w,
};

/// One option.
pub(super) struct Key {
    /// Its name as the specification spells it.
    pub(super) name: &'static str,
    /// A second name of equal standing.
    pub(super) alias: Option<&'static str>,
    /// A former name.
    pub(super) deprecated: Option<&'static str>,
    /// The meaning of the option if it is repeated.
    pub(super) repeated: Repeated,
    /// Whether an empty value is valid. Otherwise the option is ignored if it is empty (URI-6).
    pub(super) may_be_empty: bool,
    /// Whether its value must never be shown.
    pub(super) is_secret: bool,
    /// Reads a value into its field.
    pub(super) read: fn(&mut ClientOptions, &mut Reading<'_>) -> Result<(), Expected>,
    /// The field as it would be written, if it is set.
    pub(super) show: fn(&ClientOptions) -> Option<OptionValue>,
}

/// The meaning of a repeated option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// The last valid value counts, with a warning (URI-9).
    Warned,
    /// All values must be the same (TLS-2).
    Agreeing,
    /// It is an error.
    Refused,
    /// Each value is an item of a list.
    Listed,
}

/// A row: the name, the field, and the reader of a value of the field's type, with its bounds. `each` reads one item of
/// the field's list.
macro_rules! key {
    ($name:literal, $($field:ident).+: each $read:ident()) => {
        Key {
            repeated: Repeated::Listed,
            read: |options, reading| {
                let item = $read(reading)?;
                options.$($field).+.get_or_insert_default().push(item);
                Ok(())
            },
            ..Key::new($name, |options| options.$($field).+.as_ref().map(Show::show))
        }
    };
    ($name:literal, $($field:ident).+: $read:ident($($bound:expr),*)) => {
        Key {
            read: |options, reading| {
                options.$($field).+ = Some($read(reading, $($bound),*)?);
                Ok(())
            },
            ..Key::new($name, |options| options.$($field).+.as_ref().map(Show::show))
        }
    };
}

/// Every option, by name.
pub(super) static KEYS: &[Key] = &[
    key!("appname", app_name: short_text(128)),
    key!("authMechanism", auth.mechanism: choice(&Mechanism::NAMED)),
    key!("authMechanismProperties", auth.properties: properties()).secret(),
    key!("authSource", auth.source: text()).or_empty(),
    key!("compressors", compressors: compressors()),
    key!("connectTimeoutMS", connect_timeout: millis(0)),
    key!("directConnection", direct_connection: boolean()),
    key!("enableOverloadRetargeting", enable_overload_retargeting: boolean()),
    key!("heartbeatFrequencyMS", heartbeat_frequency: millis(500)),
    key!("journal", write_concern.journal: boolean()),
    key!("loadBalanced", load_balanced: boolean()),
    key!("localThresholdMS", local_threshold: millis(0)),
    key!("maxAdaptiveRetries", max_adaptive_retries: count(0)),
    key!("maxConnecting", pool.max_connecting: count(1)),
    key!("maxIdleTimeMS", pool.max_idle_time: millis(0)),
    key!("maxPoolSize", pool.max_pool_size: count(0)),
    key!("maxStalenessSeconds", read_preference.max_staleness: max_staleness()),
    key!("minPoolSize", pool.min_pool_size: count(0)),
    key!("proxyHost", proxy.host: text()).once(),
    key!("proxyPassword", proxy.password: secret()).once().secret(),
    key!("proxyPort", proxy.port: integer(1, u16::MAX.into())).once(),
    key!("proxyUsername", proxy.username: text()).once().secret(),
    key!("readConcernLevel", read_concern_level: name()),
    key!("readPreference", read_preference.mode: choice(&ReadMode::NAMED)),
    key!("readPreferenceTags", read_preference.tag_sets: each tag_set()).or_empty(),
    key!("replicaSet", replica_set: name()),
    key!("retryReads", retry_reads: boolean()),
    key!("retryWrites", retry_writes: boolean()),
    key!("serverMonitoringMode", server_monitoring_mode: choice(&ServerMonitoringMode::NAMED)),
    key!("serverSelectionTimeoutMS", server_selection_timeout: millis(1)),
    key!("serverSelectionTryOnce", server_selection_try_once: boolean()),
    key!("socketTimeoutMS", socket_timeout: millis(0)),
    key!("srvAllowedHostsSuffix", srv.allowed_hosts_suffix: name()),
    key!("srvMaxHosts", srv.max_hosts: count(0)),
    key!("srvServiceName", srv.service_name: service_name()),
    key!("timeoutMS", timeout: long_millis()),
    key!("tls", tls.enabled: boolean()).alias("ssl"),
    key!("tlsAllowInvalidCertificates", tls.allow_invalid_certificates: boolean()),
    key!("tlsAllowInvalidHostnames", tls.allow_invalid_hostnames: boolean()),
    key!("tlsCAFile", tls.ca_file: text()),
    key!("tlsCertificateKeyFile", tls.certificate_key_file: text()),
    key!("tlsCertificateKeyFilePassword", tls.certificate_key_file_password: secret()).secret().or_empty(),
    key!("tlsDisableCertificateRevocationCheck", tls.disable_certificate_revocation_check: boolean()),
    key!("tlsDisableOCSPEndpointCheck", tls.disable_ocsp_endpoint_check: boolean()),
    key!("tlsInsecure", tls.insecure: boolean()),
    key!("w", write_concern.w: w()),
    key!("wTimeoutMS", write_concern.timeout: long_millis()).formerly("wtimeout"),
    key!("waitQueueTimeoutMS", pool.wait_queue_timeout: millis(0)),
    key!("zlibCompressionLevel", zlib_compression_level: integer(-1, 9)),
];

impl ClientOptions {
    /// The options that the user set, under the specification's names.
    ///
    /// Options of authentication are listed as the connection string had them, even if `credential` was changed since.
    /// Secrets are listed as [`OptionValue::Secret`] and [`OptionValue::Properties`], which don't show them.
    pub fn set_by_user(&self) -> impl Iterator<Item = (&'static str, OptionValue)> {
        KEYS.iter().filter_map(|key| Some((key.name, (key.show)(self)?)))
    }
}

/// Whether each value that is set is within the bounds of its option.
pub(super) fn check_values(options: &ClientOptions) -> Result<(), ConnectionStringError> {
    let mut read = ClientOptions::default();
    for key in KEYS {
        let Some(text) = (key.show)(options).and_then(|value| value.written()) else { continue };
        let mut reading = Reading { option: key.name, text: &text, warnings: &mut Vec::new() };
        if let Err(expected) = (key.read)(&mut read, &mut reading) {
            return Err(ConnectionStringError::Value { option: key.name, expected });
        }
    }
    Ok(())
}

impl Key {
    /// An option that `show` displays. It ignores its value until a reader is added.
    const fn new(name: &'static str, show: fn(&ClientOptions) -> Option<OptionValue>) -> Self {
        Self {
            name,
            alias: None,
            deprecated: None,
            repeated: Repeated::Warned,
            may_be_empty: false,
            is_secret: false,
            read: |_, _| Ok(()),
            show,
        }
    }

    const fn alias(self, name: &'static str) -> Self {
        Self { alias: Some(name), repeated: Repeated::Agreeing, ..self }
    }

    const fn formerly(self, name: &'static str) -> Self {
        Self { deprecated: Some(name), ..self }
    }

    const fn once(self) -> Self {
        Self { repeated: Repeated::Refused, ..self }
    }

    const fn or_empty(self) -> Self {
        Self { may_be_empty: true, ..self }
    }

    const fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Whether `name` is a name of it that is not deprecated. Case does not matter (URI-5).
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name) || self.alias.is_some_and(|alias| alias.eq_ignore_ascii_case(name))
    }

    /// Whether `name` is its former name.
    pub(super) fn was_named(&self, name: &str) -> bool {
        self.deprecated.is_some_and(|former| former.eq_ignore_ascii_case(name))
    }
}

/// The option that `name` names, also by a former name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.is_named(name) || key.was_named(name))
}

/// Names by which other programs, and older drivers, call an option.
const ELSEWHERE: [(&str, &str); 7] = [
    ("j", "journal"),
    ("sslCAFile", "tlsCAFile"),
    ("ssl_ca_certs", "tlsCAFile"),
    ("sslPEMKeyFile", "tlsCertificateKeyFile"),
    ("sslPEMKeyPassword", "tlsCertificateKeyFilePassword"),
    ("sslAllowInvalidCertificates", "tlsAllowInvalidCertificates"),
    ("poolSize", "maxPoolSize"),
];

/// The option that is called `name` elsewhere, or whose name is at most two letters away.
pub(super) fn similar(name: &str) -> Option<&'static str> {
    const MOST: usize = 2;
    if let Some((_, meant)) = ELSEWHERE.iter().find(|(elsewhere, _)| elsewhere.eq_ignore_ascii_case(name)) {
        return Some(meant);
    }
    let name = name.to_ascii_lowercase();
    let near = KEYS.iter().filter(|key| key.name.len().abs_diff(name.len()) <= MOST && key.name.len() > 2 * MOST);
    let measured = near.map(|key| (distance(&key.name.to_ascii_lowercase(), &name), key.name));
    measured.filter(|(distance, _)| *distance <= MOST).min().map(|(_, name)| name)
}

/// How many bytes to insert, remove or replace to get from one text to the other (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let mut row: alloc::vec::Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.bytes().enumerate() {
        let mut before = index + 1;
        let mut diagonal = index;
        let mut next = alloc::vec![before];
        for (above, to) in row.iter().skip(1).zip(right.bytes()) {
            before = (diagonal + usize::from(from != to)).min(before + 1).min(above + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_share_a_name() {
        let names = KEYS.iter().flat_map(|key| [Some(key.name), key.alias, key.deprecated]).flatten();
        let mut names: alloc::vec::Vec<_> = names.map(str::to_ascii_lowercase).collect();
        let all = names.len();
        names.sort();
        names.dedup();

        assert_eq!(names.len(), all);
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(find("MAXpoolSIZE").map(|key| key.name), Some("maxPoolSize"));
        assert_eq!(find("SSL").map(|key| key.name), Some("tls"));
        assert_eq!(find("wtimeout").map(|key| key.name), Some("wTimeoutMS"));
        assert!(find("waitQueueSize").is_none() && find("").is_none());
    }

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        for (written, meant) in
            [("maxPollSize", "maxPoolSize"), ("maxPoolSizes", "maxPoolSize"), ("tlsCaFil", "tlsCAFile")]
        {
            assert_eq!(similar(written), Some(meant));
        }
        assert_eq!((similar("fsync"), similar("k"), similar("")), (None, None, None));
    }

    #[test]
    fn a_name_of_another_driver_is_recognised() {
        assert_eq!(similar("j"), Some("journal"));
        assert_eq!(similar("sslCAFile"), Some("tlsCAFile"));
        assert!(ELSEWHERE.iter().all(|(elsewhere, meant)| find(elsewhere).is_none() && find(meant).is_some()));
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (left, right, expected) in [("", "abc", 3), ("kitten", "sitting", 3), ("abc", "abc", 0), ("abc", "", 3)] {
            assert_eq!(distance(left, right), expected);
        }
    }

    #[test]
    fn nothing_is_set_that_the_user_did_not_set() {
        let (options, warnings) = ClientOptions::parse("mongodb://a").unwrap();

        assert_eq!((options.set_by_user().count(), warnings.len()), (0, 0));
        assert!(!options.pool.load_balanced && options.credential.is_none());
    }

    #[test]
    fn set_options_are_listed_under_their_names() {
        let (options, _) =
            ClientOptions::parse("mongodb://a/?MAXPOOLSIZE=5&timeoutms=0&ssl=true&compressors=zlib").unwrap();

        let listed: alloc::vec::Vec<_> =
            options.set_by_user().map(|(name, value)| alloc::format!("{name} {value:?}")).collect();
        assert_eq!(
            listed,
            ["compressors List([\"zlib\"])", "maxPoolSize Integer(5)", "timeoutMS Integer(0)", "tls Boolean(true)"]
        );
    }
}
