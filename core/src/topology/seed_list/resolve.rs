//! What to look up before a client is made, and the options that follow from the answers.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{HostError, SeedListError};
use super::records::{SrvRecord, TxtRecord, choose, domain, trusted};
use crate::address::ServerAddress;
use crate::options::{ClientOptions, Shown, Warning};
use crate::pool::Cause;
use crate::random::Random;

/// The service in the name of SRV records, if srvServiceName names none.
const SERVICE: &str = "mongodb";

/// The seed list that a connection string refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedList {
    host: String,
    service: String,
    /// The domain that all servers belong to, if it is not that of the host (DNS-20).
    #[serde(default)]
    allowed_domain: Option<String>,
    /// The number of servers to use; `None` = all.
    pub(super) max_hosts: Option<usize>,
}

/// What to look up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SeedListRequest {
    /// The name whose SRV records name the servers.
    pub srv_name: String,
    /// The name whose TXT record, if there is one, has options.
    pub txt_name: String,
}

/// Options that were completed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resolved {
    /// The options, with hosts. They go together.
    pub options: ClientOptions,
    /// Warnings about the options in the TXT record.
    pub warnings: Vec<Warning>,
    /// How long the records may be kept: a [`PolledSeedList`] is looked up again then.
    pub time_to_live: Duration,
}

/// A seed list whose records have been looked up, for [`TopologyOptions::polled_seed_list`].
///
/// [`TopologyOptions::polled_seed_list`]: crate::topology::TopologyOptions::polled_seed_list
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolledSeedList {
    /// The seed list.
    pub seed_list: SeedList,
    /// How long the records may be kept: [`Resolved::time_to_live`].
    pub time_to_live: Duration,
}

impl PolledSeedList {
    /// `seed_list`, whose records may be kept for `time_to_live`.
    pub fn new(seed_list: SeedList, time_to_live: Duration) -> Self {
        Self { seed_list, time_to_live }
    }
}

impl SeedList {
    /// The seed list that a `mongodb+srv` connection string names; `None` for options of any other.
    pub fn of(options: &ClientOptions) -> Option<Self> {
        Some(Self {
            host: options.srv.host.clone()?,
            service: options.srv.service_name.as_deref().unwrap_or(SERVICE).into(),
            // A suffix that cannot be used fails every check of the options.
            allowed_domain: options.srv.allowed_domain().ok().flatten(),
            max_hosts: options.srv.max_hosts.filter(|most| *most > 0).and_then(|most| usize::try_from(most).ok()),
        })
    }

    /// What to look up, in any order, before [`resolve`](Self::resolve). No connection is made before both answers are there
    /// (DNS-5).
    pub fn request(&self) -> SeedListRequest {
        SeedListRequest { srv_name: self.srv_name(), txt_name: self.host.clone() }
    }

    /// Whether an application `allows` all hosts of these records, before [`resolve`](Self::resolve). When records are looked up
    /// again, a driver leaves out those that it does not allow (DNS-20).
    ///
    /// # Errors
    /// It does not allow one of them.
    pub fn check_allowed(&self, records: &[SrvRecord], allows: impl Fn(&str) -> bool) -> Result<(), SeedListError> {
        let refused = records.iter().map(SrvRecord::host).find(|host| !allows(host));
        refused.map_or(Ok(()), |host| {
            let error = HostError::NotAllowed { host: Shown::new(&host, false) };
            Err(SeedListError::Host { name: self.srv_name(), error })
        })
    }

    /// The options with the hosts that the SRV records name, and the defaults that the TXT record sets. `random` chooses among
    /// the hosts if there are more than srvMaxHosts (DNS-6).
    ///
    /// An empty list says that there is no such record; `Err` says why it is not known whether there is.
    ///
    /// # Errors
    /// There are no hosts, not all of them are trusted, or the options do not go together.
    pub fn resolve(
        &self,
        mut options: ClientOptions,
        srv: Result<Vec<SrvRecord>, Cause>,
        txt: Result<Vec<TxtRecord>, Cause>,
        random: &mut Random,
    ) -> Result<Resolved, SeedListError> {
        let name = || self.srv_name();
        let records = srv.map_err(|cause| SeedListError::Srv { name: name(), cause })?;
        let time_to_live = records.iter().map(|record| record.time_to_live).min();
        let time_to_live = time_to_live.ok_or_else(|| SeedListError::NoSrvRecord { name: name() })?;
        let hosts = records.iter().map(|record| trusted(record, self.domain()));
        let hosts = hosts.collect::<Result<Vec<_>, _>>();
        let hosts = ServerAddress::distinct(hosts.map_err(|error| SeedListError::Host { name: name(), error })?);
        let warnings = self.apply_txt(&mut options, txt)?;
        options.hosts = hosts;
        // Before the choice: what does not go together must not depend on it.
        options.check_hosts().map_err(SeedListError::Options)?;
        if let Some(count) = self.max_hosts {
            options.hosts = choose(options.hosts, count, random);
        }
        Ok(Resolved { options, warnings, time_to_live })
    }

    /// The name whose SRV records name the servers (DNS-3).
    pub(super) fn srv_name(&self) -> String {
        alloc::format!("_{}._tcp.{}", self.service, self.host)
    }

    /// The domain that all servers belong to.
    pub(super) fn domain(&self) -> &str {
        self.allowed_domain.as_deref().unwrap_or_else(|| domain(&self.host))
    }

    fn apply_txt(
        &self,
        options: &mut ClientOptions,
        txt: Result<Vec<TxtRecord>, Cause>,
    ) -> Result<Vec<Warning>, SeedListError> {
        let name = || self.host.clone();
        let record = match txt.map_err(|cause| SeedListError::Txt { name: name(), cause })?.as_slice() {
            [] => return Ok(Vec::new()),
            [record] => record.strings.concat(),
            several => return Err(SeedListError::SeveralTxtRecords { name: name(), count: several.len() }),
        };
        let text = String::from_utf8(record).map_err(|_| SeedListError::TxtNotText { name: name() })?;
        options.apply_txt(&text).map_err(|error| SeedListError::TxtOptions { name: name(), error })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    fn record(target: &str) -> SrvRecord {
        SrvRecord::new(target, 27017, Duration::from_secs(300))
    }

    fn resolve(
        uri: &str,
        srv: Result<Vec<SrvRecord>, Cause>,
        txt: Result<Vec<TxtRecord>, Cause>,
    ) -> Result<Resolved, SeedListError> {
        let (options, _) = ClientOptions::parse(uri).unwrap();
        SeedList::of(&options).unwrap().resolve(options, srv, txt, &mut Random::new(1))
    }

    fn error(uri: &str, srv: Result<Vec<SrvRecord>, Cause>, txt: Result<Vec<TxtRecord>, Cause>) -> String {
        resolve(uri, srv, txt).unwrap_err().to_string()
    }

    #[test]
    fn the_host_and_the_service_make_the_names_to_look_up_dns_3() {
        let request = |uri: &str| SeedList::of(&ClientOptions::parse(uri).unwrap().0).map(|list| list.request());

        let of_default = request("mongodb+srv://a.example.com").unwrap();
        assert_eq!((&*of_default.srv_name, &*of_default.txt_name), ("_mongodb._tcp.a.example.com", "a.example.com"));
        let of_custom = request("mongodb+srv://a.example.com/?srvServiceName=custom").unwrap();
        assert_eq!(of_custom.srv_name, "_custom._tcp.a.example.com");
        assert_eq!(request("mongodb://a.example.com"), None);
    }

    #[test]
    fn resolved_options_can_be_used() {
        let mut records = vec![record("b.example.com."), record("c.example.com"), record("B.example.com")];
        records[1].time_to_live = Duration::from_secs(60);

        let resolved = resolve("mongodb+srv://a.example.com", Ok(records), Ok(vec![])).unwrap();

        let hosts: Vec<String> = resolved.options.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["b.example.com:27017", "c.example.com:27017"]);
        assert_eq!((resolved.options.check(), resolved.time_to_live), (Ok(()), Duration::from_secs(60)));
    }

    #[test]
    fn without_srv_records_there_are_no_hosts_dns_5() {
        let uri = "mongodb+srv://a.example.com";

        assert!(
            error(uri, Ok(vec![]), Ok(vec![]))
                .contains("gave no hosts, because _mongodb._tcp.a.example.com has no SRV")
        );
        let failed = error(uri, Err(Cause::new("no server answered")), Ok(vec![]));
        assert!(
            failed.contains("gave no hosts") && failed.contains("could not be looked up: no server answered"),
            "{failed}"
        );
    }

    #[test]
    fn one_host_of_another_domain_fails_the_whole_list_dns_4() {
        let records = vec![record("b.example.com"), record("b.evil.com")];

        let error = error("mongodb+srv://a.example.com", Ok(records), Ok(vec![]));

        assert!(error.contains(r#"the host "b.evil.com" is not below the domain example.com"#), "{error}");
    }

    #[test]
    fn a_suffix_replaces_the_domain_of_the_host_dns_20() {
        let hosts = |suffix: &str| {
            let uri = alloc::format!("mongodb+srv://a.example.com/?srvAllowedHostsSuffix={suffix}");
            resolve(&uri, Ok(vec![record("B.Other.net.")]), Ok(vec![])).map(|resolved| resolved.options.hosts)
        };

        for suffix in ["other.net", ".OTHER.net", ".other.net."] {
            assert_eq!(hosts(suffix).unwrap(), ["b.other.net:27017".parse().unwrap()], "{suffix}");
        }
        for suffix in ["r.net", "b.other.net", "example.com"] {
            let error = hosts(suffix).unwrap_err().to_string();
            assert!(error.contains("is not below the domain"), "{suffix}: {error}");
        }
    }

    #[test]
    fn a_host_that_the_application_does_not_allow_fails_the_whole_list_dns_20() {
        let seed_list = SeedList::of(&ClientOptions::parse("mongodb+srv://a.example.com").unwrap().0).unwrap();
        let records = [record("b.example.com"), record("C.example.com.")];

        assert_eq!(seed_list.check_allowed(&records, |host| host.ends_with(".example.com")), Ok(()));
        let error = seed_list.check_allowed(&records, |host| host != "c.example.com").unwrap_err().to_string();
        assert!(error.contains(r#"the host "c.example.com" is not allowed by this application"#), "{error}");
    }

    #[test]
    fn the_host_of_three_parts_itself_is_a_server_dns_21() {
        let resolved = resolve("mongodb+srv://a.example.com", Ok(vec![record("a.example.com")]), Ok(vec![]));

        assert_eq!(resolved.unwrap().options.hosts, ["a.example.com:27017".parse().unwrap()]);
    }

    #[test]
    fn the_pieces_of_a_txt_record_belong_together_dns_7() {
        let record_of = |pieces: [&str; 2]| TxtRecord { strings: pieces.map(|piece| piece.into()).into() };
        let (uri, srv) = ("mongodb+srv://a.example.com", || Ok(vec![record("b.example.com")]));

        let resolved = resolve(uri, srv(), Ok(vec![record_of(["replicaS", "et=rs"])])).unwrap();

        assert_eq!(resolved.options.replica_set.as_deref(), Some("rs"));
        let two = Ok(vec![TxtRecord::new("replicaSet=rs"), TxtRecord::new("authSource=db")]);
        assert!(error(uri, srv(), two).contains("has 2 TXT records"));
        assert!(error(uri, srv(), Ok(vec![TxtRecord::new([0xff])])).contains("is not UTF-8"));
        assert!(error(uri, srv(), Err(Cause::new("refused"))).contains("could not be looked up: refused"));
    }

    #[test]
    fn what_dns_says_has_to_go_together_with_the_options_dns_10() {
        let srv = || Ok(vec![record("b.example.com"), record("c.example.com")]);
        let txt = |text: &str| Ok(vec![TxtRecord::new(text)]);

        for (uri, text, expected) in [
            (
                "mongodb+srv://a.example.com/?srvMaxHosts=1",
                "replicaSet=rs",
                "srvMaxHosts cannot be used with replicaSet",
            ),
            ("mongodb+srv://a.example.com", "loadBalanced=true", "loadBalanced=true cannot be used with several hosts"),
            (
                "mongodb+srv://a.example.com/?srvMaxHosts=1",
                "loadBalanced=true",
                "loadBalanced=true cannot be used with",
            ),
        ] {
            let error = error(uri, srv(), txt(text));
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn srv_max_hosts_limits_the_hosts_dns_6() {
        let records = || (0..10).map(|number| record(&alloc::format!("h{number}.example.com"))).collect();
        let count = |limit: u32| {
            let uri = alloc::format!("mongodb+srv://a.example.com/?srvMaxHosts={limit}");
            resolve(&uri, Ok(records()), Ok(vec![])).unwrap().options.hosts.len()
        };

        assert_eq!([count(0), count(3), count(10), count(11)], [10, 3, 10, 10]);
    }
}
