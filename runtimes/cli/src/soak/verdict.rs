//! What is wrong after a soak: everything that is left over, has grown, was miscounted or should never have happened.

use core::fmt;
use core::ops::Range;
use std::time::Duration;

use super::failure::Kind;
use super::samples::{Figures, Sample};
use super::session::Run;
use super::tally::Operation;

/// Something wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Finding {
    /// More of something at the end than at the start.
    LeftOver {
        /// Of what.
        what: &'static str,
        /// At the start.
        start: u64,
        /// At the end.
        end: u64,
    },
    /// Memory grows.
    Memory(Growth),
    /// Two counts that must be equal are not.
    Unequal {
        /// What the first counts.
        what: &'static str,
        /// Its count.
        count: u64,
        /// What the second counts.
        other: &'static str,
        /// Its count.
        other_count: u64,
    },
    /// Something was there more often than it may be.
    TooMany {
        /// What.
        what: &'static str,
        /// How often.
        count: u64,
        /// How often it may be.
        limit: u64,
    },
    /// Not one operation of a sort did what it should.
    NoSuccess(Operation),
    /// An error that nothing in a soak should cause.
    Error {
        /// Its kind.
        kind: Kind,
        /// How often it came.
        count: u64,
    },
}

/// How memory changed while the soak went on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// The median of the second quarter's samples, in bytes.
    pub(crate) early: u64,
    /// The median of the last quarter's.
    pub(crate) late: u64,
    /// By how much the straight line through the second half's samples rises in a minute, in bytes.
    pub(crate) per_minute: f64,
    /// By how much it rises over all of that half.
    pub(crate) over_half: f64,
}

/// Memory that a heap may take once and never give back; more than that must not be left between the quarters.
///
/// An allocator keeps what it was given, and the busiest moment so far makes a heap grow permanently; such steps become rarer.
/// A leak goes on: 100 bytes of every operation are 16 MiB in a minute of the usual 2,800 operations a second, and what
/// belongs to one connection (16 KiB) is 1.5 MiB after ten restarts.
const FREE_GROWTH: u64 = 3 << 20;

/// A large heap may also grow by this part of itself.
const FREE_PART: u64 = 8;

/// With fewer samples the quarters say nothing.
const FEWEST_SAMPLES: usize = 16;

impl Growth {
    /// How memory changed; `None` if it was not known, or not often enough.
    pub(crate) fn of(samples: &[Sample]) -> Option<Self> {
        let points: Vec<_> = samples.iter().filter_map(|it| Some((it.at, it.figures.memory?))).collect();
        if points.len() < FEWEST_SAMPLES {
            return None;
        }
        let count = points.len();
        let median = |range: Range<usize>| median(points.get(range)?.iter().map(|(_, memory)| *memory).collect());
        let half = points.get(count / 2..)?;
        let per_second = slope(half);
        let time = half.last()?.0.saturating_sub(half.first()?.0).as_secs_f64();
        Some(Self {
            early: median(count / 4..count / 2)?,
            late: median(count - count / 4..count)?,
            per_minute: 60.0 * per_second,
            over_half: per_second * time,
        })
    }

    /// Whether that is a leak: memory has grown by more than a heap does by itself, and has not stopped growing. The second
    /// half's line rises as far as the medians differ if growth is steady; after a step that is over, it does not rise.
    pub(crate) fn is_leak(&self) -> bool {
        let bound = FREE_GROWTH.max(self.early / FREE_PART);
        self.late.saturating_sub(self.early) > bound && self.over_half > bound as f64 / 2.0
    }
}

/// Everything that is wrong.
pub(crate) fn findings(run: &Run, samples: &[Sample]) -> Vec<Finding> {
    let mut findings = left_over(&run.start, &run.end);
    findings.extend(Growth::of(samples).filter(Growth::is_leak).map(Finding::Memory));
    findings.extend(miscounted(run));
    findings.extend(too_many(run, samples));
    let succeeded = |wanted| run.operations.iter().any(|(operation, ends)| *operation == wanted && ends.succeeded > 0);
    findings.extend(Operation::ALL.into_iter().filter(|&it| !succeeded(it)).map(Finding::NoSuccess));
    let errors = run.errors.iter().filter(|(kind, _)| !kind.is_expected(run.surroundings));
    findings.extend(errors.map(|&(kind, count)| Finding::Error { kind, count }));
    findings
}

/// What there is more of at the end.
pub(super) fn left_over(start: &Figures, end: &Figures) -> Vec<Finding> {
    let pairs = [
        ("descriptors", start.descriptors, end.descriptors),
        ("tasks", Some(start.tasks), Some(end.tasks)),
        ("tasks of the runtime", start.runtime_tasks, end.runtime_tasks),
        ("connections", Some(start.connections), Some(end.connections)),
        ("connections of the server", start.server_connections, end.server_connections),
    ];
    let left_over = |(what, start, end): (_, Option<u64>, Option<u64>)| match (start?, end?) {
        (start, end) if end > start => Some(Finding::LeftOver { what, start, end }),
        _ => None,
    };
    pairs.into_iter().filter_map(left_over).collect()
}

/// Everything that begins must end (CMAP-28 to CMAP-37).
fn miscounted(run: &Run) -> Vec<Finding> {
    let events = &run.events;
    let pairs = [
        (
            ("check-outs started", events.check_outs_started),
            ("check-outs ended", events.checked_out + events.check_outs_failed),
        ),
        (("connections checked out", events.checked_out), ("connections checked in", events.checked_in)),
        (("connections created", events.created), ("connections closed", events.closed)),
    ];
    let unequal = |&(one, other): &((_, u64), (_, u64))| one.1 != other.1;
    let finding = |((what, count), (other, other_count))| Finding::Unequal { what, count, other, other_count };
    pairs.into_iter().filter(unequal).map(finding).collect()
}

fn too_many(run: &Run, samples: &[Sample]) -> Vec<Finding> {
    let failed: u64 = run.operations.iter().map(|(_, ends)| ends.failed).sum();
    let total: u64 = run.operations.iter().map(|(_, ends)| ends.succeeded + ends.dropped + ends.failed).sum();
    let limits = [
        ("check-outs that still wait", run.waiting, 0),
        ("connections that close had to cut off", run.cut_off, 0),
        ("tasks that did not come to their end", run.stuck, 0),
        ("panics", run.panics, 0),
        ("operations that failed", failed, total / 2),
        ("recoveries that took longer than 10 s", slow(&run.recoveries), 0),
        ("restarts without a recovery", run.unrecovered, 0),
        ("connections at a time", run.most_connections, run.max_pool_size.unwrap_or(u64::MAX)),
        ("standstills of 30 s or longer", standstills(samples), 0),
    ];
    let is_exceeded = |&(_, count, limit): &(_, u64, u64)| count > limit;
    let finding = |(what, count, limit)| Finding::TooMany { what, count, limit };
    limits.into_iter().filter(is_exceeded).map(finding).collect()
}

/// A standstill is a time this long in which no operation ends: longer than any timeout of the client.
const STANDSTILL: Duration = Duration::from_secs(30);

/// A server that is up is found at the next check, and checks are half a second apart while a check-out waits (MON-3).
const LONGEST_RECOVERY: Duration = Duration::from_secs(10);

fn slow(recoveries: &[Duration]) -> u64 {
    recoveries.iter().map(|&recovery| u64::from(recovery > LONGEST_RECOVERY)).sum()
}

fn standstills(samples: &[Sample]) -> u64 {
    let mut count = 0;
    let mut last: Option<&Sample> = None;
    for sample in samples {
        match last {
            Some(before) if before.operations == sample.operations => {
                if sample.at.saturating_sub(before.at) >= STANDSTILL {
                    count += 1;
                    last = Some(sample);
                }
            }
            _ => last = Some(sample),
        }
    }
    count
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The slope of the straight line that fits best (least squares), in bytes a second.
fn slope(points: &[(Duration, u64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = (|point: &(Duration, u64)| point.0.as_secs_f64(), |point: &(Duration, u64)| point.1 as f64);
    let mean_x = points.iter().map(x).sum::<f64>() / count;
    let mean_y = points.iter().map(y).sum::<f64>() / count;
    let rise: f64 = points.iter().map(|point| (x(point) - mean_x) * (y(point) - mean_y)).sum();
    let run: f64 = points.iter().map(|point| (x(point) - mean_x).powi(2)).sum();
    if run > 0.0 { rise / run } else { 0.0 }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOver { what, start, end } => {
                write!(f, "{what} are left over: {start} at the start, {end} at the end")
            }
            Self::Memory(growth) => write!(
                f,
                "memory grows: {} KiB in the second quarter, {} KiB in the last, and still {:.0} KiB a minute",
                growth.early / 1024,
                growth.late / 1024,
                growth.per_minute / 1024.0
            ),
            Self::Unequal { what, count, other, other_count } => write!(f, "{count} {what}, but {other_count} {other}"),
            Self::TooMany { what, count, limit } => write!(f, "{what}: {count}, at most {limit} may be"),
            Self::NoSuccess(operation) => write!(f, "no operation of this sort succeeded: {operation}"),
            Self::Error { kind, count } => write!(f, "an error that should never come, {count} times: {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::failure::Surroundings;
    use crate::soak::tally::{Ends, Events};

    const MIB: u64 = 1 << 20;

    /// A sample every second, with the memory that `memory` says.
    fn samples(memory: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |second| Sample {
            at: Duration::from_secs(second),
            figures: Figures { memory: Some(memory(second)), ..Figures::default() },
            operations: second,
            ..Sample::default()
        };
        (0..120).map(sample).collect()
    }

    /// A soak of one operation of each sort, with nothing wrong.
    fn run() -> Run {
        let ends = Ends { succeeded: 1, ..Ends::default() };
        Run { operations: Operation::ALL.map(|operation| (operation, ends)).into(), ..Run::default() }
    }

    fn texts(run: &Run, samples: &[Sample]) -> Vec<String> {
        findings(run, samples).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_is_wrong_when_all_is_as_at_the_start() {
        let figures = Figures { descriptors: Some(9), runtime_tasks: Some(0), ..Figures::default() };
        let run = Run { start: figures, end: figures, ..run() };

        assert_eq!(texts(&run, &samples(|_| 20 * MIB)), Vec::<String>::new());
    }

    #[test]
    fn a_steady_leak_of_memory_is_found() {
        let leak = |second| 20 * MIB + second * (MIB / 8);

        let found = texts(&run(), &samples(leak));

        let expected =
            "memory grows: 26240 KiB in the second quarter, 33920 KiB in the last, and still 7680 KiB a minute";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_heap_that_fills_up_at_the_start_is_no_leak() {
        let filling = |second| if second < 20 { 10 * MIB + second * MIB } else { 30 * MIB };

        assert_eq!(texts(&run(), &samples(filling)), Vec::<String>::new());
    }

    #[test]
    fn a_step_that_is_over_is_no_leak() {
        let step = |second| if second < 50 { 20 * MIB } else { 28 * MIB };

        assert_eq!(texts(&run(), &samples(step)), Vec::<String>::new());
    }

    #[test]
    fn noise_is_no_leak() {
        let noise = |second| 20 * MIB + (second * 7919 % 13) * (MIB / 8);

        assert_eq!(texts(&run(), &samples(noise)), Vec::<String>::new());
    }

    #[test]
    fn few_samples_say_nothing_about_memory() {
        let few = &samples(|second| second * 100 * MIB)[..FEWEST_SAMPLES - 1];

        assert_eq!(Growth::of(few), None);
    }

    #[test]
    fn what_is_left_over_is_named() {
        let start = Figures { descriptors: Some(9), tasks: 0, server_connections: Some(0), ..Figures::default() };
        let end = Figures { descriptors: Some(10), tasks: 2, server_connections: Some(1), ..start };
        let run = Run { start, end, ..run() };

        let expected = [
            "descriptors are left over: 9 at the start, 10 at the end",
            "tasks are left over: 0 at the start, 2 at the end",
            "connections of the server are left over: 0 at the start, 1 at the end",
        ];
        assert_eq!(texts(&run, &[]), expected);
    }

    #[test]
    fn a_check_out_that_never_ended_is_found() {
        let events =
            Events { check_outs_started: 3, checked_out: 1, checked_in: 1, check_outs_failed: 1, ..Events::default() };
        let run = Run { events, waiting: 1, ..run() };

        let expected =
            ["3 check-outs started, but 2 check-outs ended", "check-outs that still wait: 1, at most 0 may be"];
        assert_eq!(texts(&run, &[]), expected);
    }

    #[test]
    fn only_errors_of_a_healthy_client_are_expected() {
        let errors = vec![(Kind::PoolCleared, 7), (Kind::WrongReply, 1)];
        let run = Run { surroundings: Surroundings::Killed, errors, ..run() };

        assert_eq!(texts(&run, &[]), ["an error that should never come, 1 times: command: wrong reply"]);
    }

    #[test]
    fn a_soak_in_which_operations_of_one_sort_never_succeeded_shows_nothing_of_them() {
        let mut run = run();
        run.operations[0].1 = Ends { succeeded: 0, dropped: 0, failed: 1 };

        assert_eq!(texts(&run, &[]), ["no operation of this sort succeeded: ping"]);
    }

    #[test]
    fn a_soak_in_which_most_operations_failed_is_none() {
        let mut run = run();
        run.operations[0].1 = Ends { succeeded: 1, dropped: 0, failed: 6 };

        assert_eq!(texts(&run, &[]), ["operations that failed: 6, at most 5 may be"]);
    }

    #[test]
    fn without_restarts_a_lost_connection_is_somebodys_mistake() {
        let run = Run { errors: vec![(Kind::Network, 1)], ..run() };

        assert_eq!(texts(&run, &[]), ["an error that should never come, 1 times: command: connection lost"]);
    }

    #[test]
    fn a_server_that_is_not_ours_may_be_slow_but_keeps_its_connections() {
        let errors = vec![(Kind::Timeout, 3), (Kind::Interrupted, 1), (Kind::Network, 1)];
        let run = Run { surroundings: Surroundings::Slow, errors, ..run() };

        assert_eq!(texts(&run, &[]), ["an error that should never come, 1 times: command: connection lost"]);
    }

    #[test]
    fn a_client_that_stands_still_is_found() {
        let mut samples = samples(|_| MIB);
        samples.iter_mut().skip(80).for_each(|sample| sample.operations = 80);

        assert_eq!(texts(&run(), &samples), ["standstills of 30 s or longer: 1, at most 0 may be"]);
    }
}
