//! A trace of arbitrary bytes is refused or replayed: for the fuzzer, and for its corpus in the tests.

use alloc::vec::Vec;

use super::file::{self, HEAD, TAIL};
use super::{Replay, Trace, waits};

/// Reads a file as it is, and with checksums that fit, which a fuzzer cannot guess. What can be read is replayed.
pub fn run(data: &[u8]) {
    try_all(data);
    try_all(&with_checksums(data));
}

fn try_all(data: &[u8]) {
    let Ok(trace) = Trace::read(data) else { return };
    let Some(mut replay) = Replay::new(&trace) else {
        // A history has its waits explained.
        let _ = waits(&trace);
        return;
    };
    while let Ok(Some(_)) = replay.step() {}
}

/// The same with every checksum set to what it has to be, as far as there are whole sections.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut mended = data.to_vec();
    let Some(line) = data.iter().position(|&byte| byte == b'\n') else { return mended };
    let mut at = line + 1;
    let mut checksum = file::checksum(0, data.get(..at).unwrap_or_default());
    while let Some(&[_, ref length @ ..]) = data.get(at..).and_then(|rest| rest.first_chunk::<HEAD>()) {
        let Some(end) = usize::try_from(u32::from_le_bytes(*length)).ok().and_then(|it| it.checked_add(at + HEAD))
        else {
            break;
        };
        let Some(section) = data.get(at..end) else { break };
        checksum = file::checksum(checksum, section);
        let Some(place) = mended.get_mut(end..end.saturating_add(TAIL)) else { break };
        place.copy_from_slice(&checksum.to_le_bytes());
        at = end + TAIL;
    }
    mended
}
