//! The options of a client: everything that a connection string can set, each in its type.
//!
//! Only options that the user set are `Some`; the fields name the defaults. Options that are set in code after parsing
//! replace those of the connection string (URI-15), and [`ClientOptions::check`] then says whether they still go
//! together.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::apply;
use super::compressor::Compressor;
use super::concern::WriteConcern;
use super::conflicts;
use super::connection_string::Parts;
use super::credential::{AuthOptions, Credential};
use super::error::ConnectionStringError;
use super::keys::KEYS;
use super::option_value::OptionValue;
use super::pool::PoolOptions;
use super::proxy::ProxyOptions;
use super::read_preference::ReadPreference;
use super::server_api::ServerApi;
use super::srv::SrvOptions;
use super::tls::TlsOptions;
use super::value::has_nul;
use super::warning::Warning;
use crate::address::ServerAddress;

/// Options of a client; `None` means the default that the field names.
///
/// Neither its `Debug` form nor any error or warning about it shows passwords. There is no serialised form.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The servers to begin with, in the order they were given; at least one, but none before the SRV records of a
    /// `mongodb+srv` connection string were looked up.
    pub hosts: Vec<ServerAddress>,
    /// The database after the hosts. It asks for no authentication (AUTH-3).
    pub database: Option<String>,
    /// The user who logs in; `None` = no authentication.
    pub credential: Option<Credential>,
    /// Options of each server's pool, `load_balanced` among them.
    pub pool: PoolOptions,
    /// Options of TLS.
    pub tls: TlsOptions,
    /// The SOCKS5 proxy.
    pub proxy: ProxyOptions,
    /// Options of SRV records.
    pub srv: SrvOptions,

    /// The version of the server's API; set in code only. Default none.
    pub server_api: Option<ServerApi>,

    /// `appname`: the name that the server's logs show, at most 128 bytes. Default none (HS-9).
    pub app_name: Option<String>,
    /// `compressors`: for messages, the preferred one first. Default none (COMP-1, COMP-2).
    pub compressors: Option<Vec<Compressor>>,
    /// `zlibCompressionLevel`: -1 (zlib's own default) to 9. Default -1 (COMP-8).
    pub zlib_compression_level: Option<i8>,

    /// `directConnection`: talk to the one host whatever it is. Default false (URI-10).
    pub direct_connection: Option<bool>,
    /// `loadBalanced`: the one host is a load balancer. Default false (LB-1).
    pub load_balanced: Option<bool>,
    /// `replicaSet`: the name that every server must give as its set's. Default any.
    pub replica_set: Option<String>,

    /// `connectTimeoutMS`: for connecting, and for each of a monitor's reads; zero = none. Default 10 s (URI-12).
    pub connect_timeout: Option<Duration>,
    /// `socketTimeoutMS`: for one read or write of an operation; zero = none. Default none (URI-12). Deprecated in
    /// favour of `timeout`, which overrides it (CSOT-3).
    pub socket_timeout: Option<Duration>,
    /// `timeoutMS`: for a whole operation; zero = none. `None` means that the older timeouts apply instead (CSOT-1).
    pub timeout: Option<Duration>,
    /// `serverSelectionTimeoutMS`: how long an operation waits for a suitable server, at least 1 ms. Default 30 s
    /// (URI-12).
    pub server_selection_timeout: Option<Duration>,
    /// `serverSelectionTryOnce`: only for an embedder with a single thread; this crate has no use for it.
    pub server_selection_try_once: Option<bool>,
    /// `localThresholdMS`: how much slower than the nearest server another may be; zero = not at all. Default 15 ms
    /// (URI-12).
    pub local_threshold: Option<Duration>,
    /// `heartbeatFrequencyMS`: from the end of one check of a server to the next, at least 500 ms. Default 10 s
    /// (MON-2).
    pub heartbeat_frequency: Option<Duration>,
    /// `serverMonitoringMode`. Default auto (URI-13).
    pub server_monitoring_mode: Option<ServerMonitoringMode>,

    /// `retryReads`. Default true.
    pub retry_reads: Option<bool>,
    /// `retryWrites`. Default true.
    pub retry_writes: Option<bool>,
    /// `maxAdaptiveRetries`: how often an operation that an overloaded server refused is retried at most. Default 2
    /// (URI-14).
    pub max_adaptive_retries: Option<u32>,
    /// `enableOverloadRetargeting`: prefer another server for such a retry. Default false (URI-14).
    pub enable_overload_retargeting: Option<bool>,

    /// `readConcernLevel`: any text. Default none.
    pub read_concern_level: Option<String>,
    /// The default read preference.
    pub read_preference: ReadPreference,
    /// The default write concern.
    pub write_concern: WriteConcern,

    /// The options that `credential` was made from, to list them.
    pub(super) auth: AuthOptions,
}

/// How servers are monitored (MON-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMonitoringMode {
    /// As `Stream`, but as `Poll` where functions are run as a service.
    Auto,
    /// The server reports changes at once, where it can.
    Stream,
    /// The server is polled at intervals.
    Poll,
}

impl ServerMonitoringMode {
    /// The modes by their names.
    pub(super) const NAMED: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("stream", Self::Stream), ("poll", Self::Poll)];
}

impl ClientOptions {
    /// Reads a connection string.
    ///
    /// Options that the specification says to ignore are ignored, with a [`Warning`] that belongs in the log at level
    /// WARN (URI-5, URI-6); [`ClientOptions::advice`] has more of them. A `mongodb+srv` string is checked as far as
    /// possible without DNS; it has no hosts, and TLS is on unless it says `tls=false` (DNS-9). A
    /// [`SeedList`](crate::topology::seed_list::SeedList) finds its hosts. The work is bounded by
    /// [`MAX_LENGTH`](super::MAX_LENGTH).
    pub fn parse(text: &str) -> Result<(Self, Vec<Warning>), ConnectionStringError> {
        let parts = Parts::read(text)?;
        let mut options = Self { hosts: parts.hosts, database: parts.database, ..Self::default() };
        let mut warnings = Vec::new();
        apply::apply(&parts.options, parts.doubtful, &mut options, &mut warnings)?;
        options.pool.load_balanced = options.load_balanced == Some(true);
        options.credential = Credential::resolve(parts.user, &options.auth, options.database.as_deref())?;
        if options.auth.source.is_none() {
            options.auth.derived_source = options.credential.as_ref().map(|credential| credential.source.clone());
        }
        if parts.srv {
            options.srv.host = options.hosts.drain(..).next().and_then(ServerAddress::into_host);
            options.tls.enabled.get_or_insert(true);
        }
        conflicts::check(&options)?;
        options.pool.limits()?;
        Ok((options, warnings))
    }

    /// Whether these options go together, for options that were changed in code.
    ///
    /// Beyond what [`ClientOptions::parse`] checks, the credential must be complete: a password that the connection
    /// string left out must have been filled in (AUTH-18). No text may have a NUL.
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
        conflicts::check(self)?;
        self.pool.limits()?;
        self.credential.as_ref().map_or(Ok(()), Credential::check)?;
        Ok(())
    }

    /// Whether the options go together with the hosts that were found for them (DNS-10).
    pub(crate) fn check_hosts(&self) -> Result<(), ConnectionStringError> {
        conflicts::check(self)
    }

    /// The options that the user set, under the specification's names.
    ///
    /// Options of authentication are listed as the connection string had them, even if `credential` was changed since.
    /// Secrets are listed as [`OptionValue::Secret`] and [`OptionValue::Properties`], which don't show them.
    pub fn set_by_user(&self) -> impl Iterator<Item = (&'static str, OptionValue)> {
        KEYS.iter().filter_map(|key| Some((key.name, (key.show)(self)?)))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::options::{CredentialError, ReadMode, W};

    fn parse(text: &str) -> (ClientOptions, Vec<Warning>) {
        ClientOptions::parse(text).unwrap()
    }

    #[test]
    fn nothing_is_set_that_the_user_did_not_set() {
        let (options, warnings) = parse("mongodb://a");

        assert_eq!((options.set_by_user().count(), warnings.len()), (0, 0));
        assert!(!options.pool.load_balanced && options.credential.is_none());
    }

    #[test]
    fn set_options_are_listed_under_their_names() {
        let (options, _) = parse("mongodb://a/?MAXPOOLSIZE=5&timeoutms=0&ssl=true&compressors=zlib");

        let listed: Vec<_> = options.set_by_user().map(|(name, value)| alloc::format!("{name} {value:?}")).collect();
        assert_eq!(
            listed,
            ["compressors List([\"zlib\"])", "maxPoolSize Integer(5)", "timeoutMS Integer(0)", "tls Boolean(true)"]
        );
    }

    #[test]
    fn the_pool_learns_of_a_load_balancer() {
        assert!(parse("mongodb://a/?loadBalanced=true").0.pool.load_balanced);
        assert!(!parse("mongodb://a/?loadBalanced=false").0.pool.load_balanced);
    }

    #[test]
    fn a_pool_that_contradicts_itself_is_an_error() {
        let error = ClientOptions::parse("mongodb://a/?minPoolSize=3&maxPoolSize=2").unwrap_err();

        assert!(error.to_string().starts_with("option minPoolSize is 3, but"), "{error}");
    }

    #[test]
    fn an_srv_host_is_no_server_and_has_to_be_looked_up_first() {
        let (options, warnings) = parse("mongodb+srv://A.b.c/?srvMaxHosts=2");

        assert_eq!((options.hosts.len(), options.srv.host.as_deref(), warnings.len()), (0, Some("a.b.c"), 0));
        assert_eq!(options.check(), Err(ConnectionStringError::NotLookedUp));
        let error = |text| ClientOptions::parse(text).unwrap_err();
        assert!(matches!(error("mongodb+srv://a.b.c:1"), ConnectionStringError::SrvHost(_)));
        assert!(matches!(error("mongodb+srv://a.b.c/?directConnection=true"), ConnectionStringError::Conflict { .. }));
    }

    #[test]
    fn an_srv_host_turns_tls_on_dns_9() {
        assert!(parse("mongodb+srv://a.b.c").0.tls.is_enabled());
        assert!(!parse("mongodb+srv://a.b.c/?ssl=false").0.tls.is_enabled());
        assert!(!parse("mongodb://a.b.c").0.tls.is_enabled());
    }

    #[test]
    fn options_changed_in_code_are_checked_again() {
        let (mut options, _) = parse("mongodb://alice@a/?loadBalanced=true");

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
            let (mut options, _) = parse("mongodb://a");
            change(&mut options, nul());
            assert_eq!(options.check(), Err(ConnectionStringError::NulInOption { option }));
        }

        let (mut options, _) = parse("mongodb://a");
        options.database = nul();
        assert_eq!(options.check(), Err(ConnectionStringError::DatabaseCharacter { character: '\0' }));
        options.database = None;
        options.credential = Some(Credential::new("alice", "hunter2".into(), "a\0b"));
        assert_eq!(options.check(), Err(CredentialError::NulInSource.into()));
    }
}
