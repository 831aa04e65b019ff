//! CPUs: where a process runs, and how long it worked.
//!
//! The kernel decides whether a waiting client and a waiting server share a CPU, which matters more than the programs:
//! a CPU that sleeps takes long to wake, most of all in a virtual machine, and even a bare socket's round trips differ
//! fivefold. And if other processes work on the same machine, the elapsed time says more about them than about us.

use std::time::Duration;

/// While this exists, this thread, and the threads and processes that it starts, run on one CPU.
#[derive(Debug)]
pub struct OneCpu {
    before: os::Cpus,
}

impl OneCpu {
    /// The first available CPU; any, if the system is not asked.
    pub fn first() -> Self {
        let before = os::cpus();
        os::keep_to(before, 0);
        Self { before }
    }

    /// The second; `None` if there is none, or the system is not asked.
    pub fn second() -> Option<Self> {
        let before = os::cpus();
        os::keep_to(before, 1).then_some(Self { before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        os::restore(self.before);
    }
}

/// How long all threads of this process have worked; the elapsed time, if the system is not asked.
pub fn worked() -> Duration {
    os::worked()
}

#[cfg(target_os = "linux")]
mod os {
    use std::time::Duration;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use rustix::time::{ClockId, clock_gettime};

    pub(super) type Cpus = CpuSet;

    pub(super) fn cpus() -> Cpus {
        sched_getaffinity(None).unwrap()
    }

    /// Whether there is such a CPU, counted from zero.
    pub(super) fn keep_to(cpus: Cpus, number: usize) -> bool {
        let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).nth(number) else { return false };
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).unwrap();
        true
    }

    pub(super) fn restore(cpus: Cpus) {
        sched_setaffinity(None, &cpus).unwrap();
    }

    pub(super) fn worked() -> Duration {
        clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    pub(super) type Cpus = ();

    pub(super) fn cpus() -> Cpus {}

    pub(super) fn keep_to((): Cpus, _: usize) -> bool {
        false
    }

    pub(super) fn restore((): Cpus) {}

    pub(super) fn worked() -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(crate::tasks::clock);
        START.elapsed()
    }
}
