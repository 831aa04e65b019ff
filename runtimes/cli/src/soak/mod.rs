//! `cmap soak`: many tasks use one client for a long time, while its server is killed and started again and again. At
//! the end nothing may be left over: no task, descriptor, connection or waiter, and memory may not have grown.
//!
//! Every adapter has a process of its own, so that what is counted is its alone, and a server of its own. The way of a soak:
//!
//! 1. [`args`] says how long, how busy, and under which seed;
//! 2. [`adapter_process`] starts a process for each adapter, in which [`session`] carries the soak out:
//!    its `work` goes on in the runtime, the server is killed and started again, [`samples`] are taken;
//! 3. [`tally`] and [`outage`] count what went on, errors by their [`failure`];
//! 4. [`verdict`] finds what is left over, in the samples and in the end, and what never happened or should not have, the
//!    `panics` of any task among it;
//! 5. [`report`] prints a table of it all.

pub(crate) mod adapter_process;
pub(crate) mod args;
mod counted;
pub(crate) mod failure;
pub(crate) mod outage;
mod panics;
pub(crate) mod report;
pub(crate) mod samples;
pub(crate) mod session;
pub(crate) mod tally;
pub(crate) mod verdict;
mod work;

pub(crate) use self::args::SoakArgs;

use std::io::{self, Write};

use self::adapter_process::Ending;
use self::report::Report;
use crate::terminal::Terminal;

/// Runs a soak and prints the result, and meanwhile a table on a terminal, elsewhere lines. The exit status: 0 if nothing is left
/// over, 1 if something is, 2 if an adapter could not be soaked.
///
/// # Errors
/// Nothing more can be printed.
pub(crate) fn run(args: &SoakArgs, out: &mut dyn Write, err: &mut dyn Write, terminal: Terminal) -> io::Result<u8> {
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(error) => return writeln!(err, "error: no random bytes for a seed: {error}; give a --seed").map(|()| 2),
    };
    let mut nowhere = io::sink();
    let mut report =
        if args.json { Report::new(&mut nowhere, Terminal::None) } else { Report::new(&mut *out, terminal) };
    report.plan(&plan)?;
    let endings = adapter_process::run(&args.adapters(), &plan, &mut |adapter, sample| report.sample(adapter, sample))?;
    let mut columns = Vec::new();
    let mut all_ran = true;
    for (adapter, ending) in endings {
        match ending {
            Ending::Ended(ended) => columns.push((adapter, ended)),
            Ending::Broken(reason) => {
                writeln!(err, "error: {adapter}: {reason}")?;
                all_ran = false;
            }
        }
    }
    let findings = report.table(&plan, &columns)?;
    if args.json {
        report::json(&plan, &columns, out)?;
    }
    Ok(if all_ran { u8::from(findings > 0) } else { 2 })
}
