//! async-std's runtime for benchmarks.

use std::future::Future;
use std::process::{Command, ExitCode};

use cmap_async_std::AsyncStd;
use cmap_benchmarks::Harness;
use cmap_benchmarks::report::Report;

/// Sets how many threads the executor has, before its first use.
const THREADS: &str = "ASYNC_STD_THREAD_COUNT";

/// The executor that all tasks share.
pub(crate) struct Global;

impl Harness for Global {
    type Runtime = AsyncStd;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}

/// A benchmark program whose executor has one thread.
///
/// Only the environment can set that, and a process cannot change its own without `unsafe`: it starts itself anew.
pub(crate) fn with_one_thread(measure: impl FnOnce(&mut Report)) -> ExitCode {
    if std::env::var(THREADS).is_ok_and(|threads| threads == "1") {
        return cmap_benchmarks::program(measure);
    }
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program).args(std::env::args_os().skip(1)).env(THREADS, "1").status().unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
