//! Seeds, one after the other on each processor, up to the first that breaks a law.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::args::Seeds;

/// Takes every seed, until `simulate` breaks off. Returns the time of CPU that it took; on a terminal it shows how far it is,
/// and how fast.
///
/// # Errors
/// Nothing more can be printed.
pub(super) fn each_seed(
    seeds: Seeds,
    out: &mut dyn Write,
    is_terminal: bool,
    simulate: impl Fn(u64) -> ControlFlow<()> + Sync,
) -> io::Result<Duration> {
    each_timed_seed(seeds, out, is_terminal, || None, simulate)
}

/// The same, where `simulated` says how much time has been simulated so far.
pub(super) fn each_timed_seed(
    seeds: Seeds,
    out: &mut dyn Write,
    is_terminal: bool,
    simulated: impl Fn() -> Option<Duration>,
    simulate: impl Fn(u64) -> ControlFlow<()> + Sync,
) -> io::Result<Duration> {
    let before = cpu_time();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.first);
    let begin = time(ClockId::Monotonic);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if simulate(seed).is_break() {
                return next.store(seeds.end, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        while is_terminal && !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(200));
            let done = next.load(Ordering::Relaxed).min(seeds.end) - seeds.first;
            write!(out, "\r{}", progress(done, seeds, simulated(), time(ClockId::Monotonic).saturating_sub(begin)))?;
            out.flush()?;
        }
        if is_terminal { write!(out, "\r") } else { Ok(()) }
    })?;
    Ok(cpu_time().saturating_sub(before))
}

/// How far it is, and how fast, in words that cover those before.
fn progress(done: u64, seeds: Seeds, simulated: Option<Duration>, taken: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let a_second_done = a_second(done as f64, taken);
    let simulated = simulated.map(|time| format!(", {:.0} s simulated", a_second(time.as_secs_f64(), taken)));
    let simulated = simulated.unwrap_or_default();
    format!("{done} of {} seeds; in a second: {a_second_done:.0} seeds{simulated}    ", seeds.count())
}

/// The time that this process has worked, on all processors.
fn cpu_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

fn time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// How many of it there were in a second of this time.
pub(super) fn a_second(number: f64, taken: Duration) -> f64 {
    number / taken.as_secs_f64().max(1e-9)
}
