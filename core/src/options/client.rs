//! The options of a client: everything that a connection string can set, each in its type.
//!
//! Only options that the user set are `Some`; the fields name the defaults. Options that are set in code after parsing
//! replace those of the connection string (URI-15), and [`ClientOptions::check`] then says whether they still go
//! together.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::compressor::Compressor;
use super::concern::WriteConcern;
use super::credential::{AuthOptions, Credential};
use super::pool::PoolOptions;
use super::proxy::ProxyOptions;
use super::read_preference::ReadPreference;
use super::server_api::ServerApi;
use super::srv::SrvOptions;
use super::tls::TlsOptions;
use crate::address::ServerAddress;

/// Options of a client; `None` means the default that the field names.
///
/// Neither its `Debug` form nor any error or warning about it shows passwords. There is no serialised form.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The servers to begin with, in the order they were given; a repeated one counts once. At least one, but none before
    /// the SRV records of a `mongodb+srv` connection string were looked up.
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

impl ClientOptions {
    /// Whether the one host is a load balancer (LB-1). Code may say so by `load_balanced` or by `pool.load_balanced`.
    pub fn is_load_balanced(&self) -> bool {
        self.load_balanced == Some(true) || self.pool.load_balanced
    }
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
