//! The SRV and TXT records that the simulation's DNS has, for `mongodb+srv` connection strings.

use std::collections::BTreeMap;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

/// What DNS does about each host.
#[derive(Default)]
pub(crate) struct Dns(BTreeMap<String, Zone>);

/// What DNS does about one host.
#[derive(Clone)]
pub(crate) enum Zone {
    /// It has these records.
    Has(Records),
    /// It answers with an error.
    Fails,
    /// It never answers.
    Hangs,
}

/// The records of one host.
#[derive(Clone, Default)]
pub(crate) struct Records {
    pub(crate) srv: Vec<SrvRecord>,
    pub(crate) txt: Vec<TxtRecord>,
}

impl Dns {
    pub(crate) fn set(&mut self, host: &str, zone: Zone) {
        self.0.insert(host.to_owned(), zone);
    }

    /// A host that nobody has set has no records.
    pub(crate) fn zone(&self, host: &str) -> Zone {
        self.0.get(host).cloned().unwrap_or_else(|| Zone::Has(Records::default()))
    }
}
