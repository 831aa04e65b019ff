//! `cmap plan`: how many connections an application's pools open at each server of a deployment, and how large the
//! pools need to be.
//!
//! It computes, and connects to nothing.
//!
//! 1. `args` is the command line: a connection string, processes, a limit, what was measured;
//! 2. `deployment` counts: connections at each server, monitors included, with the processes that `deploy` adds;
//! 3. `sizes` finds by Little's law what the measured concurrency needs;
//! 4. `warning` says which limit is passed, and what fits; `report` prints, as text or as JSON.

mod args;
mod deploy;
mod deployment;
mod report;
mod sizes;
mod warning;

use std::io::{self, Write};

use serde::Serialize;

pub(crate) use self::args::PlanArgs;

use self::deployment::{Deployment, Load, ProcessLoad};
use self::sizes::{Concurrency, PoolSizes};
use self::warning::Warning;

/// The outcome: connections, sizes and warnings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    /// What was planned for.
    pub(crate) deployment: Deployment,
    /// The connections at each server, all of which are alike to the application's clients.
    pub(crate) at_each_server: Load,
    /// The connections of each process, at all servers together.
    pub(crate) of_each_process: ProcessLoad,
    /// The sizes that the measured concurrency needs, if some was given.
    pub(crate) needed: Option<PoolSizes>,
    /// What does not fit.
    pub(crate) warnings: Vec<Warning>,
}

impl Plan {
    /// Computes the plan of a deployment whose clients have so many connections in use at a time.
    pub(crate) fn new(deployment: Deployment, measured: Option<Concurrency>) -> Self {
        let (at_each_server, of_each_process) = (deployment.load(), deployment.load_of_process());
        let needed = measured.map(Concurrency::pool_sizes);
        let warnings = warning::of(&deployment, at_each_server, needed);
        Self { deployment, at_each_server, of_each_process, needed, warnings }
    }
}

/// Prints the plan, and what of the connection string has no effect. The exit status: 0, or 1 if there are warnings, or 2 if the arguments
/// cannot be used.
///
/// # Errors
/// Nothing more can be printed.
pub(crate) fn run(args: &PlanArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let plan = match args.deployment().and_then(|deployment| Ok(Plan::new(deployment, args.measured()?))) {
        Ok(plan) => plan,
        Err(error) => return writeln!(err, "error: {error}").map(|()| 2),
    };
    let print = if args.json { report::json } else { report::text };
    print(&plan, out)?;
    out.flush()?;
    let ignored = match args.warnings() {
        Ok(ignored) => ignored,
        Err(error) => return writeln!(err, "error: {error}").map(|()| 2),
    };
    ignored.iter().try_for_each(|warning| writeln!(err, "warning: {warning}"))?;
    Ok(u8::from(!plan.warnings.is_empty() || !ignored.is_empty()))
}
