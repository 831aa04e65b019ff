//! The fuzzer's target: its bytes are a script, played on the machine under the oracle's eyes.
//!
//! A seed of chance lets time go its way from seed to seed; a fuzzer goes where the code has branches that nothing has met. What it
//! finds is a script like any other: it is shrunk, and printed with the law that it breaks.

use std::time::Duration;

use cmap_core::time::Instant;

use super::shrink::{play, shrink, twins};
use super::step::{Deployment, Establishment, FaultKind, Heard, Lookup, Purpose, Script, Step};
use super::world::{Weather, World};

/// Most steps of a script.
const STEPS: usize = 300;

/// From this byte on, the servers stand in DNS.
const SEED_LIST: u8 = 192;

/// Plays one input. The first three bytes choose the options, as a seed draws them, and the deployment; each five that follow are
/// a step: what happens, with two arguments, and how long after the step before.
///
/// # Panics
/// If a law breaks: that is a finding.
pub fn run(data: &[u8]) {
    let Some((&[low, high, deployment], rest)) = data.split_first_chunk() else { return };
    let seed = u64::from(u16::from_le_bytes([low, high]));
    let deployment = match deployment {
        SEED_LIST.. => Deployment::SeedList,
        _ => nth(&Deployment::WITHOUT_DNS, deployment),
    };
    let mut now = Instant::ORIGIN;
    let (steps, _) = rest.as_chunks::<5>();
    let steps = steps.iter().take(STEPS).map(|&[what, argument, more, mantissa, exponent]| {
        now = now + Duration::from_micros(u64::from(mantissa) << (exponent % 18));
        (now, step(what, argument, more))
    });
    let steps = steps.collect();
    let client = World::new(seed, Some(deployment), Weather::Drawn).client().clone();
    let script = Script { client, steps, until: now };
    let Some(machine) = twins(&script.client) else { return };
    if let Err(broken) = play(&script, machine).1 {
        let smallest = shrink(script, &twins);
        assert_eq!(broken.law, "", "{}\n{smallest}", broken.detail);
    }
}

fn step(what: u8, argument: u8, more: u8) -> Step {
    let place = usize::from(argument % 16);
    let time = Duration::from_micros(u64::from(argument) << (more % 18));
    let is_true = more.is_multiple_of(2);
    match what {
        240..=245 => return Step::WarmUp((argument > 0).then(|| u32::from(argument % 8))),
        246 | 247 => return Step::CancelWarmUp(place),
        248 => return Step::AddIdentity,
        249 => return Step::RemoveIdentity(place),
        250 | 251 => {
            return Step::RenewCredential { identity: (argument >= 128).then_some(place), is_proven: more < 224 };
        }
        252.. => return Step::Resolve(lookup(argument, more)),
        _ => {}
    }
    match what % 24 {
        0..=5 => Step::CheckOut {
            purpose: if is_true { Purpose::Write } else { Purpose::Read },
            limit: (argument >= 128).then_some(time),
            key: (more >= 192).then(|| u64::from(argument % 6)),
            identity: (what % 24 > 3).then_some(place),
        },
        6 => Step::Cancel(place),
        7..=10 => Step::CheckIn { nth: place, is_usable: !more.is_multiple_of(4) },
        11..=13 => Step::Establish { nth: place, end: end(more) },
        14 => Step::Check { nth: place, is_alive: is_true },
        15 => Step::Refresh { nth: place, is_alive: is_true },
        16 => Step::HangUp(place),
        17 => Step::OperationFailed { nth: place, fault: nth(&FAULTS, more) },
        18 | 19 => Step::Heard { member: place, finding: heard(more) },
        20 if argument >= 192 => Step::Limit {
            max_wait_queue_depth: is_true.then_some(u32::from(argument % 8) + 1),
            max_new_connections_per_second: more.is_multiple_of(3).then_some(200),
        },
        20 => Step::Resize { max_pool_size: u32::from(argument % 8), max_connecting: u32::from(more % 3) + 1 },
        21 => Step::ReplaceConnections(time),
        22 => Step::EndAffinity(u64::from(argument % 6)),
        _ if argument == 0 => Step::Resume,
        _ => Step::Suspend(time),
    }
}

fn lookup(argument: u8, more: u8) -> Lookup {
    if more.is_multiple_of(8) {
        return Lookup::Failed;
    }
    let time_to_live = Duration::from_secs(u64::from(argument / 16) * 8);
    Lookup::Found { routers: argument % 16, has_stranger: more >= 128, time_to_live }
}

fn heard(argument: u8) -> Heard {
    match argument % 8 {
        0 => Heard::Failure,
        1 => Heard::Timeout,
        2..=4 => Heard::Answer { primary_of: None, round_trip_millis: argument / 8 },
        _ => Heard::Answer { primary_of: Some(u64::from(argument / 8)), round_trip_millis: argument / 8 },
    }
}

/// Behind a load balancer a connection has one of three services.
fn end(argument: u8) -> Establishment {
    let end = nth(&ENDS, argument);
    if matches!(end, Establishment::Done) { Establishment::DoneBy(argument / 8 % 3) } else { end }
}

/// Most establishments succeed, as in life.
const ENDS: [Establishment; 8] = [
    Establishment::Done,
    Establishment::Done,
    Establishment::Done,
    Establishment::Done,
    Establishment::Refused,
    Establishment::HungUp,
    Establishment::TimedOut,
    Establishment::Unauthorized,
];

const FAULTS: [FaultKind; 5] = [
    FaultKind::Network,
    FaultKind::Timeout,
    FaultKind::NotWritablePrimary,
    FaultKind::ShuttingDown,
    FaultKind::Overload,
];

fn nth<T: Copy, const N: usize>(of: &[T; N], argument: u8) -> T {
    of[usize::from(argument) % N]
}
