//! How long the explained waits would have been with other options: estimates, as text and as JSON.

use std::io::{self, Write};
use std::str::FromStr;
use std::time::Duration;

use cmap_core::trace::{Changes, Estimate, Fate, Outcome, Trace, Wait, WhatIfError, explain, what_if};
use serde::Serialize;

use super::args::Explained;
use super::explanation::{self, Told};

/// What `--what-if` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhatIf {
    /// What is worth trying where these limits bound.
    Standard,
    /// These changes together.
    Changes(Changes),
}

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "standard" => Ok(Self::Standard),
            changes => changes.parse().map(Self::Changes).map_err(|error| format!("{error}, or `standard`")),
        }
    }
}

/// The waits that are asked for, and what would have become of them.
#[derive(Serialize)]
struct Answer<'a> {
    waits: Vec<Told<'a>>,
    estimates: Vec<Estimated>,
}

/// One estimate. Times in nanoseconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Estimated {
    change: String,
    /// Of the explained waits, in their order.
    waits: Vec<Compared>,
    all: Both,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Compared {
    call: Option<u64>,
    recorded: u128,
    estimated: u128,
    fate: Fate,
}

/// Sums over all waits of the trace.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Both {
    recorded: u128,
    estimated: u128,
    recorded_failures: usize,
    estimated_failures: usize,
}

/// Explains the waits that are asked for, estimates them with other options, and returns them.
pub(super) fn print(
    trace: &Trace,
    explained: Explained,
    asked: &[WhatIf],
    json: bool,
    out: &mut dyn Write,
) -> io::Result<Result<Vec<Wait>, WhatIfError>> {
    let waits = match explain(trace, explained.0) {
        Ok(waits) => waits,
        Err(divergence) => return Ok(Err(WhatIfError::Divergence(divergence))),
    };
    let mut estimates = Vec::new();
    for changes in changes(trace, &waits, asked) {
        match what_if(trace, &changes) {
            Ok(estimate) => estimates.push((changes, estimate)),
            Err(error) => return Ok(Err(error)),
        }
    }
    if json {
        let estimates = estimates.iter().map(|(changes, estimate)| told(changes, estimate, &waits)).collect();
        serde_json::to_writer_pretty(&mut *out, &Answer { waits: waits.iter().map(Told::of).collect(), estimates })?;
        return writeln!(out).map(|()| Ok(waits));
    }
    explanation::print_waits(&waits, out)?;
    if !waits.is_empty() {
        print_estimates(&estimates, &waits, out)?;
    }
    Ok(Ok(waits))
}

fn changes(trace: &Trace, waits: &[Wait], asked: &[WhatIf]) -> Vec<Changes> {
    let changes = asked.iter().flat_map(|asked| match asked {
        WhatIf::Standard => Changes::standard(trace, waits),
        WhatIf::Changes(changes) => vec![changes.clone()],
    });
    changes.collect()
}

fn told(changes: &Changes, estimate: &Estimate, waits: &[Wait]) -> Estimated {
    let (recorded, estimated) = estimate.totals();
    let compared = waits.iter().filter_map(|wait| estimate.of(wait)).map(|(was, would_be)| Compared {
        call: was.call,
        recorded: was.duration().as_nanos(),
        estimated: would_be.duration().as_nanos(),
        fate: would_be.fate,
    });
    Estimated {
        change: changes.to_string(),
        waits: compared.collect(),
        all: Both {
            recorded: recorded.waited.as_nanos(),
            estimated: estimated.waited.as_nanos(),
            recorded_failures: recorded.failed,
            estimated_failures: estimated.failed,
        },
    }
}

fn print_estimates(estimates: &[(Changes, Estimate)], waits: &[Wait], out: &mut dyn Write) -> io::Result<()> {
    if estimates.is_empty() {
        return writeln!(out, "estimates: none; no limit of a pool bound these waits");
    }
    writeln!(out, "estimates, with late wake-ups left out:")?;
    for (changes, estimate) in estimates {
        for (was, would_be) in waits.iter().filter_map(|wait| estimate.of(wait)) {
            let call = was.call.map_or_else(|| "before the trace".to_owned(), |call| format!("call {call}"));
            writeln!(out, "  {changes}: {call}: {} instead of {}", outcome(&would_be), outcome(&was))?;
        }
        let (was, would_be) = estimate.totals();
        let (now, before) = (would_be.waited, was.waited);
        writeln!(
            out,
            "  {changes}: all: {now:.3?} instead of {before:.3?}; failed: {} instead of {}",
            would_be.failed, was.failed
        )?;
    }
    if !estimates.iter().any(|(_, estimate)| helps(estimate)) {
        writeln!(out, "  nothing of this helps")?;
    }
    Ok(())
}

fn outcome(outcome: &Outcome) -> String {
    let duration: Duration = outcome.duration();
    match outcome.fate {
        Fate::Delivered => format!("{duration:.3?}"),
        Fate::Failed => format!("{duration:.3?} (failed)"),
        Fate::Cancelled => format!("{duration:.3?} (gave up)"),
        Fate::Open => format!("{duration:.3?} (still waiting)"),
    }
}

/// Fewer failures, or a twentieth less to wait without more of them.
fn helps(estimate: &Estimate) -> bool {
    let (was, would_be) = estimate.totals();
    would_be.failed < was.failed || (would_be.failed == was.failed && would_be.waited < was.waited.mul_f64(0.95))
}
