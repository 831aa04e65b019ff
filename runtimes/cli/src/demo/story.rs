//! What happened, in words, and why.

use core::fmt::Write;
use std::collections::BTreeSet;
use std::time::Duration;

use cmap_core::pool::ConnectionId;

use super::figures::{Outcome, Played};
use super::stage::Plan;
use crate::soak::args::Adapter;

/// What is going to be shown.
pub(super) fn beginning(plan: &Plan, is_own_server: bool) -> String {
    let Plan { tasks, .. } = plan;
    let server = if is_own_server {
        "The server is a process of its own, which is stopped and started again."
    } else {
        "The server is yours: it is only pinged, and not stopped."
    };
    format!("{tasks} tasks share {}, on each runtime in turn. {server}\n", connections(plan))
}

pub(super) fn busy(played: &Played, plan: &Plan) -> String {
    let (Played { waiting, .. }, Plan { tasks, .. }) = (played, plan);
    format!(
        "{tasks} tasks ping over {}: {}\n{}: {waiting} tasks wait in line.",
        connections(plan),
        throughput(played),
        waits(played),
    )
}

pub(super) fn kept(played: &Played, id: Option<ConnectionId>) -> String {
    let which = id.map_or_else(|| "a connection".to_owned(), |id| format!("connection {id}"));
    let others = played.in_use.saturating_sub(1);
    format!(
        "one task keeps {which} for {}: {}\n{}: the other {others} connections serve all other tasks.",
        time(played.time),
        throughput(played),
        waits(played),
    )
}

pub(super) fn outage(played: &Played) -> String {
    let saw = match played.scene.failures() {
        1 => "1 caller sees an error".to_owned(),
        count => format!("{count} callers see an error"),
    };
    format!(
        "the server is stopped for {}: {saw}{}\n{INDENT}Nobody else fails: later check-outs wait for the server.",
        time(played.time),
        errors(played),
    )
}

pub(super) fn recovery(after: &Played, recovery: Option<Duration>) -> String {
    let Some(recovery) = recovery else { return format!("the server is back, but no ping succeeds{}", errors(after)) };
    format!(
        "the server is back: the first ping succeeds after {}\n{INDENT}While callers wait, the monitor asks the server every \
         500 ms; then {}{}",
        time(recovery),
        throughput(after),
        errors(after),
    )
}

pub(super) fn closed(result: &Outcome) -> String {
    let problems = result.problems();
    if !problems.is_empty() {
        return format!("closed; missing or unexplained: {}\n", problems.join(", "));
    }
    let end = &result.end;
    format!(
        "closed; nothing is missing: {} check-outs have ended, {} connections are closed\n",
        end.check_outs_started, end.created
    )
}

/// The figures of all runtimes.
pub(super) fn table(results: &[(Adapter, Outcome)]) -> String {
    let mut text = String::new();
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let cells: String = results.iter().map(|(_, result)| format!("  {:>10}", cell(result))).collect();
        let _ = writeln!(text, "{name:42}{cells}");
    };
    row("pings a second", &|it| format!("{:.0}", it.busy.pings_per_second()));
    row("  while one connection is kept", &|it| format!("{:.0}", it.kept.pings_per_second()));
    row("a check-out waits: median", &|it| time(it.busy.waits()[0]));
    row("  99 %", &|it| time(it.busy.waits()[1]));
    row("  longest", &|it| time(it.busy.waits()[2]));
    row("errors that callers saw", &|it| it.errors().values().sum::<u64>().to_string());
    let kinds: BTreeSet<_> = results.iter().flat_map(|(_, result)| result.errors().into_keys()).collect();
    for kind in kinds {
        row(&format!("  {kind}"), &|it| it.errors().get(&kind).copied().unwrap_or_default().to_string());
    }
    row("recovery", &|it| it.recovery.map_or_else(|| "–".to_owned(), time));
    row("missing", &|it| match it.problems().len() {
        0 => "nothing".to_owned(),
        count => count.to_string(),
    });
    let names: String = results.iter().map(|(adapter, _)| format!("  {:>10}", adapter.name())).collect();
    format!("{:42}{names}\n{text}", "")
}

/// The last line.
pub(super) fn end(is_whole: bool) -> &'static str {
    if is_whole {
        "Nothing is missing: every check-out ended once, and every connection was closed."
    } else {
        "Something is missing or unexplained: see above."
    }
}

/// Before lines that explain the one above them.
const INDENT: &str = "        ";

fn connections(plan: &Plan) -> String {
    match plan.connections {
        0 => "connections without a limit".to_owned(),
        most => format!("{most} connections"),
    }
}

fn throughput(played: &Played) -> String {
    format!("{:.0} pings/s", played.pings_per_second())
}

fn waits(played: &Played) -> String {
    let [median, most, longest] = played.waits().map(time);
    format!("{INDENT}A check-out waits {median} (median), {most} (99 %), {longest} at most")
}

/// A line for each kind, and the words of the first of them.
fn errors(played: &Played) -> String {
    let seen = played.scene.errors.iter();
    let texts = seen.map(|(kind, seen)| format!("\n{INDENT}{} × {kind}\n{INDENT}    {}", seen.count, seen.example));
    texts.collect()
}

/// A time with two digits that matter.
fn time(time: Duration) -> String {
    let ms = 1000.0 * time.as_secs_f64();
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else if ms < 1000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::DemoArgs;

    #[test]
    fn the_size_is_that_of_the_connection_string() {
        for (uri, size) in [
            ("mongodb://localhost/", "10 connections"),
            ("mongodb://localhost/?maxPoolSize=50", "50 connections"),
            ("mongodb://localhost/?maxPoolSize=0", "connections without a limit"),
        ] {
            let plan = Plan::new(&DemoArgs { uri: Some(uri.to_owned()), seconds: 1 }, None).unwrap();

            let (beginning, busy) = (beginning(&plan, false), busy(&Played::default(), &plan));

            assert!(beginning.starts_with(&format!("200 tasks share {size}, ")), "{beginning}");
            assert!(busy.starts_with(&format!("200 tasks ping over {size}: ")), "{busy}");
        }
    }
}
