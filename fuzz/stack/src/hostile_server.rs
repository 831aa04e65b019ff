//! A client in virtual time, and the lies of its server: every call ends in time, and the client recovers.

use std::sync::{Arc, Mutex};

use cmap_conformance::{Whim, hostile};

/// Runs one input. The first byte is the seed and says whether the client logs in, those that follow decide the lies.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let Some((&first, lies)) = data.split_first() else { return };
    hostile::simulate(first.into(), first.is_multiple_of(2), || {
        Whim::Script(Arc::new(Mutex::new(lies.iter().copied().collect())))
    });
}
