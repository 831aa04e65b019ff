//! What is printed: the plan, while the soak goes on a table on a terminal and elsewhere a line now and then, and at the end a
//! table with a column for each adapter.

use core::fmt::Display;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::adapter_process::Ended;
use super::args::{Adapter, Plan, Server};
use super::failure::Kind;
use super::samples::{Figures, Sample};
use super::tally::{Ends, Operation};
use super::verdict::{Growth, findings};
use crate::live_table::LiveTable;
use crate::terminal::{Terminal, bar};

/// Prints a soak.
pub(crate) struct Report<'a> {
    live: LiveTable<'a>,
    /// The last two samples of each adapter.
    seen: BTreeMap<&'static str, [Sample; 2]>,
    /// How long the soak takes.
    duration: Duration,
    printed: BTreeMap<&'static str, Duration>,
}

/// An adapter and its result.
type Column = (Adapter, Box<Ended>);

/// One of the figures of a sample.
type Figure = fn(&Figures) -> Option<u64>;

const HEADER: &str = "             time  operations each s in use waiting connections     KiB tasks";

/// Lines for each adapter while the soak goes on.
const LINES: u32 = 10;

impl<'a> Report<'a> {
    /// A report that goes to `out`.
    pub(crate) fn new(out: &'a mut dyn Write, terminal: Terminal) -> Self {
        let live = LiveTable::new(out, terminal, Vec::new());
        Self { live, seen: BTreeMap::new(), duration: Duration::ZERO, printed: BTreeMap::new() }
    }

    /// Prints what is going to be done.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn plan(&mut self, plan: &Plan) -> io::Result<()> {
        self.duration = plan.duration;
        let Plan { seed, duration, tasks, server } = plan;
        write!(self.live, "seed {seed}: {tasks} tasks for {} s, ", duration.as_secs())?;
        match server {
            Server::Own { restart_every: Some(every), max_pool_size } => writeln!(
                self.live,
                "maxPoolSize {max_pool_size}, the server killed and started again every {} s",
                every.as_secs()
            )?,
            Server::Own { restart_every: None, max_pool_size } => {
                writeln!(self.live, "maxPoolSize {max_pool_size}, the server never restarted")?;
            }
            Server::Named { .. } => {
                writeln!(
                    self.live,
                    "a server that is not ours: not restarted, its connections not counted, its time-outs no findings"
                )?;
            }
        }
        if super::samples::memory().is_none() || super::samples::descriptors().is_none() {
            writeln!(self.live, "memory and descriptors are not watched: they are read from /proc, which is Linux's")?;
        }
        self.live.flush()
    }

    /// Shows a sample in the table; without one, prints it, unless the last one was a short time before.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn sample(&mut self, adapter: Adapter, sample: &Sample) -> io::Result<()> {
        if self.live.terminal() != Terminal::None {
            let [_, last] = self.seen.get(adapter.name()).copied().unwrap_or_default();
            self.seen.insert(adapter.name(), [last, *sample]);
            let rows = self.seen.iter().map(|(adapter, samples)| live_row(adapter, samples));
            let progress = progress(sample.at, self.duration);
            return self.live.show(std::iter::once(HEADER.into()).chain(rows).chain([progress]).collect());
        }
        let last = self.printed.entry(adapter.name()).or_default();
        if sample.at < *last + self.duration / LINES {
            return Ok(());
        }
        *last = sample.at;
        let Figures { memory, descriptors, tasks, connections, .. } = sample.figures;
        writeln!(
            self.live,
            "{adapter:9} {:7.1} s  {:>10} operations  {:>7} KiB  {:>4} descriptors  {tasks:>4} tasks  {connections:>3} connections",
            sample.at.as_secs_f64(),
            sample.operations,
            or_unknown(memory.map(|bytes| bytes / 1024)),
            or_unknown(descriptors),
        )?;
        self.live.flush()
    }

    /// Prints the table, and what is wrong; returns how much that is.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn table(&mut self, plan: &Plan, columns: &[Column]) -> io::Result<usize> {
        if columns.is_empty() {
            return Ok(0);
        }
        writeln!(self.live)?;
        self.row("", columns, |(adapter, _)| adapter.to_string())?;
        self.operations(plan, columns)?;
        self.errors(columns)?;
        self.recoveries(columns)?;
        self.pool(columns)?;
        self.figures(columns)?;
        let mut count = 0;
        writeln!(self.live)?;
        for (adapter, ended) in columns {
            for finding in findings(&ended.run, &ended.samples) {
                let line = self.live.terminal().verdict(false, &format!("FAIL {adapter}: {finding}"));
                writeln!(self.live, "{line}")?;
                count += 1;
            }
        }
        let end = match count {
            0 => "nothing is left over".to_owned(),
            1 => "1 finding".to_owned(),
            count => format!("{count} findings"),
        };
        let end = self.live.terminal().verdict(count == 0, &end);
        writeln!(self.live, "{end}")?;
        self.live.flush()?;
        Ok(count)
    }

    fn operations(&mut self, plan: &Plan, columns: &[Column]) -> io::Result<()> {
        let sum = |(_, ended): &Column, count: fn(&Ends) -> u64| {
            ended.run.operations.iter().map(|(_, ends)| count(ends)).sum::<u64>()
        };
        let seconds = plan.duration.as_secs_f64().max(1.0);
        self.row("operations", columns, |column| sum(column, Ends::total).to_string())?;
        self.row("  a second", columns, |column| format!("{:.0}", sum(column, Ends::total) as f64 / seconds))?;
        for operation in Operation::ALL {
            let ends = |(_, ended): &Column| {
                let found = ended.run.operations.iter().find(|(of, _)| *of == operation);
                found.map(|(_, ends)| ends.total()).unwrap_or_default().to_string()
            };
            self.row(&format!("  {operation}"), columns, ends)?;
        }
        self.row("succeeded", columns, |column| sum(column, |ends| ends.succeeded).to_string())?;
        self.row("dropped half-way", columns, |column| sum(column, |ends| ends.dropped).to_string())
    }

    fn errors(&mut self, columns: &[Column]) -> io::Result<()> {
        let total = |(_, ended): &Column| ended.run.errors.iter().map(|(_, count)| count).sum::<u64>().to_string();
        self.row("failed", columns, total)?;
        let kinds: BTreeSet<Kind> =
            columns.iter().flat_map(|(_, ended)| &ended.run.errors).map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let count = |(_, ended): &Column| {
                let found = ended.run.errors.iter().find(|(of, _)| *of == kind);
                found.map(|(_, count)| *count).unwrap_or_default().to_string()
            };
            self.row(&format!("  {kind}"), columns, count)?;
        }
        Ok(())
    }

    fn recoveries(&mut self, columns: &[Column]) -> io::Result<()> {
        self.row("server killed", columns, |(_, ended)| ended.run.restarts.to_string())?;
        self.row("recoveries", columns, |(_, ended)| ended.run.recoveries.len().to_string())?;
        let times = |(_, ended): &Column, pick: fn(&[Duration]) -> Option<&Duration>| {
            let mut times = ended.run.recoveries.clone();
            times.sort_unstable();
            or_unknown(pick(&times).map(|time| format!("{:.1} ms", 1000.0 * time.as_secs_f64())))
        };
        self.row("  shortest", columns, |column| times(column, |times| times.first()))?;
        self.row("  median", columns, |column| times(column, |times| times.get(times.len() / 2)))?;
        self.row("  longest", columns, |column| times(column, |times| times.last()))
    }

    fn pool(&mut self, columns: &[Column]) -> io::Result<()> {
        self.row("check-outs started", columns, |(_, ended)| ended.run.events.check_outs_started.to_string())?;
        self.row("  checked out", columns, |(_, ended)| ended.run.events.checked_out.to_string())?;
        self.row("  failed", columns, |(_, ended)| ended.run.events.check_outs_failed.to_string())?;
        self.row("  waiting, at most", columns, |(_, ended)| ended.run.most_waiting.to_string())?;
        self.row("connections created", columns, |(_, ended)| ended.run.events.created.to_string())?;
        self.row("  at a time, at most", columns, |(_, ended)| ended.run.most_connections.to_string())?;
        self.row("pool cleared", columns, |(_, ended)| ended.run.events.cleared.to_string())
    }

    /// What the process held: at the start, the most, at the end.
    fn figures(&mut self, columns: &[Column]) -> io::Result<()> {
        let figures: [(&str, Figure); 4] = [
            ("descriptors", |figures| figures.descriptors),
            ("tasks", |figures| Some(figures.tasks)),
            ("connections", |figures| Some(figures.connections)),
            ("connections of the server", |figures| figures.server_connections),
        ];
        let from_to = |(_, ended): &Column, figure: Figure| {
            let most = ended.samples.iter().filter_map(|sample| figure(&sample.figures)).max();
            let ends = [figure(&ended.run.start), most, figure(&ended.run.end)];
            ends.map(or_unknown).join(" / ")
        };
        writeln!(self.live, "at the start / at most / at the end")?;
        for (name, figure) in figures {
            self.row(&format!("  {name}"), columns, |column| from_to(column, figure))?;
        }
        let growth = |(_, ended): &Column, text: fn(Growth) -> String| match Growth::of(&ended.samples) {
            Some(growth) => text(growth),
            None => "too few samples".to_owned(),
        };
        writeln!(self.live, "memory")?;
        self.row("  second quarter", columns, |column| growth(column, |it| format!("{} KiB", it.early / 1024)))?;
        self.row("  last quarter", columns, |column| growth(column, |it| format!("{} KiB", it.late / 1024)))?;
        let trend = |it: Growth| format!("{:+.1} KiB/min", it.per_minute / 1024.0);
        self.row("  trend of the last half", columns, |column| growth(column, trend))
    }

    fn row(&mut self, name: &str, columns: &[Column], cell: impl Fn(&Column) -> String) -> io::Result<()> {
        let cells: String = columns.iter().map(|column| format!("  {:>16}", cell(column))).collect();
        writeln!(self.live, "{name:41}{cells}")
    }
}

/// Prints the results for programs.
pub(super) fn json(plan: &Plan, columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    let of = |(adapter, ended): &Column| {
        let findings = findings(&ended.run, &ended.samples).iter().map(ToString::to_string).collect::<Vec<_>>();
        json!({ "adapter": adapter.name(), "findings": findings, "run": ended.run })
    };
    let results =
        json!({ "plan": without_connection_string(plan), "adapters": columns.iter().map(of).collect::<Vec<_>>() });
    serde_json::to_writer_pretty(&mut *out, &results)?;
    writeln!(out)
}

/// The plan as it may be shown: a connection string may have a password in it.
fn without_connection_string(plan: &Plan) -> Value {
    let Plan { seed, duration, tasks, server } = plan;
    let server = match server {
        Server::Own { .. } => json!(server),
        Server::Named { uri: _ } => json!("named"),
    };
    json!({ "seed": seed, "duration": duration, "tasks": tasks, "server": server })
}

/// The last line of the table that is shown while the soak goes on.
fn progress(at: Duration, duration: Duration) -> String {
    let percent = (100 * at.as_millis()).checked_div(duration.as_millis()).unwrap_or(100).min(100);
    let left = duration.saturating_sub(at).as_secs();
    format!(
        "          {}  {percent} %, {} min {} s left",
        bar(usize::try_from(percent).unwrap_or(100)),
        left / 60,
        left % 60
    )
}

/// A row of the table that is shown while the soak goes on.
fn live_row(adapter: &str, [last, sample]: &[Sample; 2]) -> String {
    let time = sample.at.saturating_sub(last.at).as_secs_f64().max(0.001);
    let each_second = sample.operations.saturating_sub(last.operations) as f64 / time;
    let Sample { at, figures, operations, in_use, waiting } = sample;
    let Figures { memory, tasks, connections, .. } = figures;
    let memory = or_unknown(memory.map(|bytes| bytes / 1024));
    let seconds = at.as_secs_f64();
    format!(
        "{adapter:>9} {seconds:5.0} s {operations:>11} {each_second:>6.0} {in_use:>6} {waiting:>7} {connections:>11} {memory:>7} {tasks:>5}"
    )
}

/// A value, or a dash where there is none.
fn or_unknown(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u64, operations: u64) -> Sample {
        let figures = Figures { memory: Some(20 << 20), tasks: 210, connections: 10, ..Figures::default() };
        Sample { at: Duration::from_secs(seconds), figures, operations, in_use: 9, waiting: 150 }
    }

    fn printed(terminal: Terminal) -> String {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, terminal);
        report.duration = Duration::from_secs(12);
        report.sample(Adapter::Smol, &sample(1, 1000)).unwrap();
        report.sample(Adapter::Smol, &sample(3, 4000)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_terminal_shows_a_table_that_is_drawn_again() {
        let text = printed(Terminal::Plain);

        let (first, second) = text.split_once("\x1b[3A\x1b[J").unwrap();
        assert!(first.starts_with(HEADER) && second.starts_with(HEADER), "{text:?}");
        let row = second.lines().nth(1).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["smol", "3", "s", "4000", "1500", "9", "150", "10", "20480", "210"]);
        assert!(row.len() == HEADER.len() && row.len() <= 80, "{row}");
        assert!(second.ends_with("#####...............  25 %, 0 min 9 s left\n"), "{second}");
    }

    #[test]
    fn json_has_the_plan_without_a_connection_string() {
        let named = Server::Named { uri: "mongodb://app:hunter2@db.example/".to_owned() };
        let own = Server::Own { restart_every: None, max_pool_size: 3 };
        let [named, own] = [named, own].map(|server| {
            let plan = Plan { seed: 1, duration: Duration::from_secs(2), tasks: 5, server };
            let mut out = Vec::new();
            json(&plan, &[], &mut out).unwrap();
            String::from_utf8(out).unwrap()
        });

        assert!(!named.contains("hunter2") && !named.contains("db.example"), "{named}");
        let [named, own] = [named, own].map(|text| serde_json::from_str::<Value>(&text).unwrap()["plan"].take());
        assert_eq!((&named["server"], &named["tasks"]), (&json!("named"), &json!(5)));
        assert_eq!(own["server"], json!({ "own": { "restartEvery": null, "maxPoolSize": 3 } }));
    }

    #[test]
    fn elsewhere_there_are_lines_alone() {
        let text = printed(Terminal::None);

        assert!(!text.contains('\x1b') && text.lines().all(|line| line.contains(" operations ")), "{text:?}");
    }
}
