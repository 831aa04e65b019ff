//! The answers of DNS, as far as they matter here; which of the hosts in them are trusted, and a random choice of those.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::HostError;
use crate::address::ServerAddress;
use crate::options::Shown;
use crate::random::Random;

/// An SRV record: where a server is. Its priority and weight have no meaning here (DNS-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrvRecord {
    /// The name of the host, with or without the final dot.
    pub target: String,
    /// The port.
    pub port: u16,
    /// How long the record may be kept.
    pub time_to_live: Duration,
}

/// A TXT record: options of the connection string, in pieces of at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxtRecord {
    /// The pieces, which belong together without anything in between (DNS-7).
    pub strings: Vec<Vec<u8>>,
}

impl SrvRecord {
    /// A record with this content.
    pub fn new(target: impl Into<String>, port: u16, time_to_live: Duration) -> Self {
        Self { target: target.into(), port, time_to_live }
    }

    /// The name of the host, in lower case and without the final dot.
    pub fn host(&self) -> String {
        self.target.strip_suffix('.').unwrap_or(&self.target).to_ascii_lowercase()
    }
}

impl TxtRecord {
    /// A record of one piece.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { strings: Vec::from([text.into()]) }
    }
}

/// The domain of the host of a connection string, to which all its servers belong (DNS-2): all but its first part if it has three
/// or more, else all of it.
pub(super) fn domain(host: &str) -> &str {
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.split_once('.') {
        Some((_, parent)) if parent.contains('.') => parent,
        Some(_) | None => host,
    }
}

/// The server that `record` names, if it is below `domain` (DNS-4).
pub(super) fn trusted(record: &SrvRecord, domain: &str) -> Result<ServerAddress, HostError> {
    let name = record.host();
    let host = || Shown::new(&record.target, false);
    let is_below =
        name.strip_suffix(&domain.to_ascii_lowercase()).is_some_and(|part| part.len() > 1 && part.ends_with('.'));
    if !is_below {
        return Err(HostError::OtherDomain { host: host(), domain: domain.into() });
    }
    let is_name =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !name.split('.').all(is_name) {
        return Err(HostError::Name { host: host() });
    }
    if record.port == 0 {
        return Err(HostError::Port { host: host() });
    }
    Ok(ServerAddress::tcp(&name, record.port))
}

/// `count` of `hosts`, each choice equally likely (Fisher-Yates, DNS-6); all of them, in their order, if there are no more.
pub(super) fn choose(mut hosts: Vec<ServerAddress>, count: usize, random: &mut Random) -> Vec<ServerAddress> {
    if count >= hosts.len() {
        return hosts;
    }
    for index in 0..count {
        let others = u64::try_from(hosts.len() - index - 1).unwrap_or(u64::MAX);
        hosts.swap(index, index + usize::try_from(random.up_to(others)).unwrap_or_default());
    }
    hosts.truncate(count);
    hosts
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// The address, or why the name in a record of the host is not trusted.
    fn check(host: &str, target: &str) -> Result<String, String> {
        let record = SrvRecord::new(target, 27017, Duration::ZERO);
        trusted(&record, domain(host)).map(|address| address.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_host_of_fewer_than_three_parts_is_its_own_domain_dns_2() {
        assert_eq!((domain("localhost"), domain("mongo.local")), ("localhost", "mongo.local"));
        assert_eq!((domain("a.b.c"), domain("a.b.c.d"), domain("a.b.c.")), ("b.c", "b.c.d", "b.c"));
        assert!(check("localhost", "test.localhost").is_ok() && check("mongo.local", "x.y.mongo.local").is_ok());
    }

    #[test]
    fn a_host_of_another_domain_is_not_trusted_dns_4() {
        for (host, target) in [
            ("localhost", "localhost.mongodb"),
            ("mongo.local", "test_1.evil.local"),
            ("blogs.mongodb.com", "blogs.evil.com"),
        ] {
            let error = check(host, target).unwrap_err();
            assert!(error.contains("is not below the domain"), "{error}");
        }
    }

    #[test]
    fn the_host_of_the_connection_string_itself_is_not_trusted_dns_4() {
        assert!(check("localhost", "localhost").is_err() && check("mongo.local", "mongo.local").is_err());
        assert!(check("mongo.local", ".mongo.local").is_err());
    }

    #[test]
    fn a_domain_begins_after_a_dot_dns_4() {
        for (host, target) in [
            ("localhost", "test_1.cluster_1localhost"),
            ("mongo.local", "test_1.my_hostmongo.local"),
            ("blogs.mongodb.com", "cluster.testmongodb.com"),
        ] {
            assert!(check(host, target).is_err(), "{target}");
        }
    }

    #[test]
    fn case_and_the_final_dot_do_not_matter_dns_4() {
        assert_eq!(check("A.Example.COM", "DB.example.com."), Ok("db.example.com:27017".into()));
    }

    #[test]
    fn a_name_that_no_host_has_is_not_trusted() {
        for target in ["a b.example.com", "a\n.example.com", "a..example.com", "a:1.example.com", "a/../b.example.com"]
        {
            assert!(check("x.example.com", target).unwrap_err().ends_with("is not the name of a host"), "{target}");
        }
        let record = SrvRecord::new("a.example.com", 0, Duration::ZERO);
        assert!(matches!(trusted(&record, "example.com"), Err(HostError::Port { .. })));
    }

    #[test]
    fn every_choice_of_hosts_is_equally_likely_dns_6() {
        let hosts: Vec<_> = (1..=4).map(|port| ServerAddress::tcp("a", port)).collect();
        let mut random = Random::new(1);
        let mut chosen = [0; 4];

        for _ in 0..4000 {
            for host in choose(hosts.clone(), 2, &mut random) {
                chosen[hosts.iter().position(|other| *other == host).unwrap()] += 1;
            }
        }

        assert!(chosen.iter().all(|count| (1850..2150).contains(count)), "{chosen:?}");
        assert_eq!(
            (choose(hosts.clone(), 4, &mut random), choose(hosts.clone(), 9, &mut random)),
            (hosts.clone(), hosts)
        );
    }
}
