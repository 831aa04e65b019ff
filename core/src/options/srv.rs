//! Options of connection strings that stand for SRV records in DNS.

use alloc::string::String;

/// How the SRV records are looked up and used; only for `mongodb+srv://`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrvOptions {
    /// The host of a `mongodb+srv://` connection string, whose SRV records name the servers. Default none.
    pub host: Option<String>,
    /// `srvMaxHosts`: the number of hosts to use, chosen at random; 0 = all. Default 0.
    pub max_hosts: Option<u32>,
    /// `srvServiceName`: the service to look up. Default `mongodb`.
    pub service_name: Option<String>,
}
