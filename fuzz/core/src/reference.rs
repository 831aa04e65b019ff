//! A pool beside the reference of its property test: the input is a pool's options, and then steps of five bytes each.
//!
//! A step has the same length wherever it stands, so that a fuzzer that cuts, copies or joins inputs at steps gets steps again.

#![allow(clippy::cast_possible_truncation, reason = "all numbers come from bytes")]

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cmap_core::options::{Affinity, Profile, Reuse};
use cmap_core::pool::{Condition, Reaction};

use crate::model::case::Case;
use crate::model::sut::Sut;
use crate::model::transition::{Call, KEYS, Options, Pick, Refusal, Resized, SERVICES, Step, Time};

/// Most steps of a case.
const STEPS: usize = 200;

/// Times in which one new connection is allowed: they divide a second.
const INTERVALS: [u64; 6] = [0, 1, 2, 4, 5, 8];

/// Runs one case: the pool and the reference make its calls side by side.
///
/// # Panics
/// They differ, or a law is broken: that is a finding.
pub fn run(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk() else { return };
    let (steps, _) = rest.as_chunks();
    let outcome = catch_unwind(AssertUnwindSafe(|| compare(options(*head), steps)));
    if let Err(broken) = outcome {
        // A broken check comes without a word, for proptest's sake.
        match broken.downcast::<String>() {
            Ok(text) => panic!("{text}"),
            Err(other) => resume_unwind(other),
        }
    }
}

fn compare(options: Options, steps: &[[u8; 5]]) {
    let mut case = Case::new(options);
    let mut sut = Sut::new(&case);
    for bytes in steps.iter().take(STEPS) {
        let step = step(*bytes, options.load_balanced);
        case.step(&step);
        sut.step(&case, &step);
    }
    sut.finish(case);
}

/// A number up to `most`.
fn up_to(byte: u8, most: u8) -> u64 {
    u64::from(byte % (most + 1))
}

/// In half of all cases 0, which means that there is no such limit.
fn limit(byte: u8, most: u8) -> u64 {
    if byte < 128 { 0 } else { 1 + up_to(byte, most - 1) }
}

fn options(head: [u8; 12]) -> Options {
    let [sizes, connecting, idle, waits, host, care, switches, queue, rate, life, sticky, refresh] = head;
    let (max_pool_size, floor) = (up_to(sizes, 5) as u32, up_to(sizes / 6, 5) as u32);
    // minPoolSize > maxPoolSize > 0 is an option error (CMAP-2).
    let min_pool_size = if max_pool_size == 0 { floor } else { floor.min(max_pool_size) };
    let affinity = match sticky % 5 {
        0 => None,
        1 => Some(Affinity::Prefer),
        2 => Some(Affinity::Require),
        which => Some(Affinity::Hold { time: Duration::from_nanos(1 + up_to(sticky / 5, 11)), lend: which == 4 }),
    };
    let load_balanced = switches & 1 == 1;
    Options {
        max_pool_size,
        min_pool_size,
        max_connecting: 1 + up_to(connecting, 2) as u32,
        max_idle: limit(idle, 8),
        wait_queue_timeout: limit(waits, 12),
        host_timeout: limit(host, 4),
        maintenance: (care % 4 > 0).then(|| 1 + up_to(care / 4, 7)),
        check_after_idle: if care >= 192 { u64::MAX } else { up_to(care, 2) },
        load_balanced,
        backoff: switches & 2 == 2,
        max_wait_queue_depth: if queue.is_multiple_of(4) { 1 + up_to(queue / 4, 3) as usize } else { 0 },
        reuse: if switches & 4 == 4 { Reuse::Fifo } else { Reuse::Lifo },
        creation_interval: if rate < 160 { 0 } else { interval(rate) },
        max_lifetime: if life < 160 { 0 } else { 1 + up_to(life, 15) },
        max_uses: if life.is_multiple_of(3) { 1 + up_to(life / 3, 2) as u32 } else { 0 },
        affinity,
        refresh_requirement: if refresh < 128 { 0 } else { 2 + up_to(refresh, 1) },
        profile: if switches / 16 % 4 == 3 && !load_balanced { Profile::Cmap1_1 } else { Profile::Current },
        observed: switches < 224,
        recorded: connecting >= 192,
    }
}

fn interval(byte: u8) -> u64 {
    INTERVALS[usize::from(byte) % INTERVALS.len()]
}

fn step([when, what, which, argument, rest]: [u8; 5], load_balanced: bool) -> Step {
    let call = call(what, pick(which), argument, load_balanced);
    Step { time: time(when), call, keep_outputs: rest < 52, restore: (52..58).contains(&rest) }
}

fn time(when: u8) -> Time {
    match when {
        0..=127 => Time::Same,
        128..=183 => Time::Later(1 + up_to(when, 3)),
        184..=213 => Time::Deadline,
        214..=223 => Time::BeforeDeadline,
        224..=233 => Time::AfterDeadline,
        234..=243 => Time::Earlier(1 + up_to(when, 19)),
        // Up to an hour and a bit.
        _ => Time::Later(1 << (3 * (when - 244) + 6)),
    }
}

fn pick(which: u8) -> Pick {
    match which {
        254 => Pick::NeverIssued,
        255 => Pick::Foreign,
        232.. => Pick::Any(usize::from(which - 232)),
        _ => Pick::Fitting(usize::from(which)),
    }
}

fn call(what: u8, pick: Pick, argument: u8, load_balanced: bool) -> Call<Pick> {
    let is_even = argument.is_multiple_of(2);
    let service = argument / 2 % SERVICES;
    let key = u64::from(argument) % KEYS;
    match what {
        0..=51 => {
            let deadline = (argument >= 192).then(|| i64::from(argument % 14) - 1);
            Call::CheckOut(deadline, (argument % 8 < 5).then_some(u64::from(argument % 8)))
        }
        52..=91 => {
            let user = if argument % 16 == 15 { Pick::Any(usize::from(argument / 16)) } else { Pick::Fitting(0) };
            Call::CheckIn(user, pick, if argument >= 224 { Condition::Errored } else { Condition::Usable })
        }
        92..=127 => Call::Established(pick),
        128..=137 => Call::Ready,
        138..=149 => Call::Cancel(pick),
        150..=157 => {
            let is_of_one = if load_balanced { argument < 240 } else { argument >= 248 };
            Call::Clear { service: is_of_one.then_some(service), interrupts: is_even }
        }
        158..=169 => Call::Hello(pick, service),
        170..=183 => {
            let reaction = if argument >= 170 { Reaction::ClearPool } else { Reaction::KeepPool };
            let refusal = match argument % 9 {
                0..=5 => Refusal::Overload,
                6 | 7 => Refusal::Credential,
                _ => Refusal::Other,
            };
            Call::EstablishFailed(pick, reaction, refusal)
        }
        184..=195 => Call::Checked(pick, argument < 204),
        196..=203 => Call::Refreshed(pick),
        204..=207 => Call::RefreshFailed(pick),
        208..=213 => Call::PeerClosed(pick),
        214..=221 => Call::Resize(resized(argument, pick)),
        222..=225 => Call::ReplaceConnections(up_to(argument, 9)),
        226..=229 => Call::EndAffinity(key),
        230 | 231 => Call::Resume,
        232 | 233 => Call::RenewCredential,
        234..=238 => Call::WarmUp((argument < 204).then(|| up_to(argument, 6) as u32)),
        239 => Call::CancelWarmUp(up_to(argument, 12)),
        240 => Call::ResetAfterFork,
        241 if argument < 64 => Call::Close,
        _ => Call::Timeout,
    }
}

/// Small sizes are those that leave a surplus.
fn resized(argument: u8, pick: Pick) -> Resized {
    let more = match pick {
        Pick::Fitting(number) | Pick::Any(number) => number as u8,
        Pick::NeverIssued | Pick::Foreign => 0,
    };
    Resized {
        max_pool_size: (!argument.is_multiple_of(4)).then(|| up_to(argument / 4, 4) as u32),
        min_pool_size: argument.is_multiple_of(3).then(|| up_to(argument / 12, 3) as u32),
        max_connecting: (!more.is_multiple_of(4)).then(|| up_to(more / 4, 3) as u32),
        max_wait_queue_depth: more.is_multiple_of(5).then(|| up_to(more / 5, 3) as usize),
        creation_interval: more.is_multiple_of(7).then(|| interval(more / 7)),
    }
}
