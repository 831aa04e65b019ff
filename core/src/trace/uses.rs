//! Who used the connections of a pool while others waited: those in use, and those that were given back meanwhile.

use alloc::vec::Vec;
use core::time::Duration;

use super::wait::Use;

/// Most uses that an interval names.
const NAMED: usize = 8;

/// Most uses that are remembered until an interval ends.
const REMEMBERED: usize = 1024;

/// The uses of an interval that goes on: those now, and those that have ended since they were looked at, `by` before.
pub(super) fn continued<H: Clone>(now: &[Use<H>], then: &[Use<H>], ended: usize, by: Duration) -> (Vec<Use<H>>, usize) {
    let mut uses = now.to_vec();
    let mut ended = ended;
    for before in then {
        if before.has_ended {
            uses.push(before.clone());
        } else if !now.iter().any(|now| (now.connection, now.since) == (before.connection, before.since)) {
            ended += 1;
            uses.push(Use { has_ended: true, held_for: before.held_for.saturating_add(by), ..before.clone() });
        }
    }
    if uses.len() > now.len() + REMEMBERED {
        shorten(&mut uses);
    }
    (uses, ended)
}

/// Lets those that go on last longer.
pub(super) fn age<H>(uses: &mut [Use<H>], by: Duration) {
    uses.iter_mut().filter(|held| !held.has_ended).for_each(|held| held.held_for = held.held_for.saturating_add(by));
}

/// Adds those of an earlier interval which are not among them, and leaves the longest.
pub(super) fn join<H: Clone>(uses: &mut Vec<Use<H>>, before: &[Use<H>]) {
    for earlier in before {
        if !uses.iter().any(|later| (later.connection, later.since) == (earlier.connection, earlier.since)) {
            uses.push(Use { has_ended: true, ..earlier.clone() });
        }
    }
    shorten(uses);
}

/// Leaves the longest.
pub(super) fn shorten<H>(uses: &mut Vec<Use<H>>) {
    uses.sort_by_key(|held| core::cmp::Reverse(held.held_for));
    uses.truncate(NAMED);
}
