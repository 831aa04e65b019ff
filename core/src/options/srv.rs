//! Options of connection strings that stand for SRV records in DNS.

use alloc::string::String;

use super::error::ConnectionStringError;

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
    /// `srvAllowedHostsSuffix`: the domain that all servers belong to, of at least two parts; a dot before it makes no
    /// difference. Default that of the host (DNS-2, DNS-20).
    pub allowed_hosts_suffix: Option<String>,
}

impl SrvOptions {
    /// The domain that `srvAllowedHostsSuffix` names, without the dots around it, if it names one.
    ///
    /// # Errors
    /// It is not the name of a domain of at least two parts: every host of a top-level domain would be allowed.
    pub fn allowed_domain(&self) -> Result<Option<String>, ConnectionStringError> {
        let Some(suffix) = &self.allowed_hosts_suffix else { return Ok(None) };
        let domain = suffix.strip_prefix('.').unwrap_or(suffix);
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        if !domain.contains('.') || domain.split('.').any(str::is_empty) {
            let expected = "a domain of at least two parts, such as .example.com".into();
            return Err(ConnectionStringError::Value { option: "srvAllowedHostsSuffix", expected });
        }
        Ok(Some(domain.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_is_a_domain_of_at_least_two_parts_dns_20() {
        let domain = |suffix: &str| {
            let options = SrvOptions { allowed_hosts_suffix: Some(suffix.into()), ..SrvOptions::default() };
            options.allowed_domain().ok().flatten()
        };

        for suffix in ["example.com", ".example.com", ".Example.COM."] {
            assert_eq!(domain(suffix).as_deref(), Some("example.com"), "{suffix}");
        }
        for suffix in ["", ".", "com", ".com", ".com.", "..com", "a..com"] {
            assert_eq!(domain(suffix), None, "{suffix}");
        }
    }
}
