//! The bytes of a trace, which is refused or replayed.

use cmap_core::trace::{Replay, Trace, waits};
use crc::{CRC_32_ISCSI, Crc};

/// The bytes of a section before its payload, a tag and the length, and those behind it, the checksum.
const HEAD: usize = 5;
const TAIL: usize = 4;

static CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Reads a file as it is, and with checksums that fit, which a fuzzer cannot guess. What can be read is replayed.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
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

/// The file with every checksum set to what it has to be, as far as there are whole sections.
pub fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut mended = data.to_vec();
    let Some(line) = data.iter().position(|&byte| byte == b'\n') else { return mended };
    let mut at = line + 1;
    let mut sum = checksum(0, data.get(..at).unwrap_or_default());
    while let Some(&[_, ref length @ ..]) = data.get(at..).and_then(|rest| rest.first_chunk::<HEAD>()) {
        let Some(end) = usize::try_from(u32::from_le_bytes(*length)).ok().and_then(|it| it.checked_add(at + HEAD))
        else {
            break;
        };
        let Some(section) = data.get(at..end) else { break };
        sum = checksum(sum, section);
        let Some(place) = mended.get_mut(end..end.saturating_add(TAIL)) else { break };
        place.copy_from_slice(&sum.to_le_bytes());
        at = end + TAIL;
    }
    mended
}

/// Of a section, or of the line that names the trace, after those before it.
fn checksum(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = CHECKSUM.digest();
    digest.update(&before.to_le_bytes());
    digest.update(bytes);
    digest.finalize()
}
