//! The seed list of a `mongodb+srv` connection string: servers and options that stand in DNS.
//!
//! The connection string names one host. Its SRV records name the servers, and a TXT record next to them may set a few options.
//! Nothing here does I/O: a driver looks up the names of a [`SeedListRequest`], and hands the answers in.
//!
//! 1. [`SeedList::of`] the parsed options, and [`SeedList::request`] says what to look up;
//! 2. [`SeedList::resolve`] makes options with hosts of the answers, or says why they cannot be used;
//! 3. a [`Topology`](super::Topology) with the [`PolledSeedList`] in its options looks the SRV records up again, as long as it
//!    may be a sharded cluster, and its servers follow the answers.
//!
//! ```
//! use core::time::Duration;
//!
//! use cmap_core::options::ClientOptions;
//! use cmap_core::random::Random;
//! use cmap_core::topology::seed_list::{SeedList, SrvRecord, TxtRecord};
//!
//! let (options, _) = ClientOptions::parse("mongodb+srv://cluster.example.com/")?;
//! let Some(seed_list) = SeedList::of(&options) else { unreachable!("it has no hosts yet") };
//! let request = seed_list.request();
//! assert_eq!((&*request.srv_name, &*request.txt_name), ("_mongodb._tcp.cluster.example.com", "cluster.example.com"));
//!
//! // A driver asks DNS.
//! let srv = vec![SrvRecord::new("a.example.com", 27017, Duration::from_secs(300))];
//! let txt = vec![TxtRecord::new("replicaSet=rs")];
//!
//! let resolved = seed_list.resolve(options, Ok(srv), Ok(txt), &mut Random::new(1))?;
//! assert_eq!(resolved.options.hosts, ["a.example.com:27017".parse()?]);
//! assert_eq!(resolved.options.replica_set.as_deref(), Some("rs"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `records` | the answers of DNS, which of their hosts are trusted, and a random choice |
//! | `resolve` | what to look up first, and the options that follow |
//! | `polling` | when to look up again, what an answer means, and the servers that follow it |
//! | `error` | why the answers cannot be used |

mod error;
mod polling;
mod records;
mod resolve;

pub use self::error::{HostError, SeedListError};
pub use self::polling::LEAST_INTERVAL;
pub(super) use self::polling::SrvPolling;
pub use self::records::{SrvRecord, TxtRecord};
pub use self::resolve::{PolledSeedList, Resolved, SeedList, SeedListRequest};
