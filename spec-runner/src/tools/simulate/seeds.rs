//! Seeds, one after the other on each processor, up to the first that breaks a law.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::args::Seeds;

/// Takes every seed, until `simulate` breaks off. Returns the time of CPU that it took; on a terminal it shows how far it is.
///
/// # Errors
/// Nothing more can be printed.
pub(super) fn each_seed(
    seeds: Seeds,
    out: &mut dyn Write,
    is_terminal: bool,
    simulate: impl Fn(u64) -> ControlFlow<()> + Sync,
) -> io::Result<Duration> {
    let before = cpu_time();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.first);
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
            write!(out, "\r{done} of {} seeds", seeds.count())?;
            out.flush()?;
        }
        if is_terminal { write!(out, "\r") } else { Ok(()) }
    })?;
    Ok(cpu_time().saturating_sub(before))
}

/// The time that this process has worked, on all processors.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// How many of it there were in a second of CPU.
pub(super) fn a_second(number: f64, cpu: Duration) -> f64 {
    number / cpu.as_secs_f64().max(1e-9)
}
