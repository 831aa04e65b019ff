//! What is printed: the plan, a line now and then while the soak goes on, and at the end a table with a column for each adapter.

use core::fmt::Display;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use super::adapter_process::Ended;
use super::args::{Adapter, Plan, Server};
use super::failure::Kind;
use super::samples::{Figures, Sample};
use super::tally::{Ends, Operation};
use super::verdict::{Growth, findings};

/// Prints a soak.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    between_lines: Duration,
    printed: BTreeMap<&'static str, Duration>,
}

/// An adapter and its result.
type Column = (Adapter, Box<Ended>);

/// One of the figures of a sample.
type Figure = fn(&Figures) -> Option<u64>;

/// Lines for each adapter while the soak goes on.
const LINES: u32 = 10;

impl<'a> Report<'a> {
    /// A report that goes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, between_lines: Duration::ZERO, printed: BTreeMap::new() }
    }

    /// Prints what is going to be done.
    ///
    /// # Errors
    /// Those of the output.
    pub fn plan(&mut self, plan: &Plan) -> io::Result<()> {
        self.between_lines = plan.duration / LINES;
        let Plan { seed, duration, tasks, server } = plan;
        write!(self.out, "seed {seed}: {tasks} tasks for {} s, ", duration.as_secs())?;
        match server {
            Server::Own { restart_every: Some(every), max_pool_size } => writeln!(
                self.out,
                "maxPoolSize {max_pool_size}, the server killed and started again every {} s",
                every.as_secs()
            )?,
            Server::Own { restart_every: None, max_pool_size } => {
                writeln!(self.out, "maxPoolSize {max_pool_size}, the server never restarted")?;
            }
            Server::Named { .. } => {
                writeln!(
                    self.out,
                    "a server that is not ours: not restarted, its connections not counted, its time-outs no findings"
                )?;
            }
        }
        if super::samples::memory().is_none() || super::samples::descriptors().is_none() {
            writeln!(self.out, "memory and descriptors are not watched: they are read from /proc, which is Linux's")?;
        }
        self.out.flush()
    }

    /// Prints a sample, unless the last one was a short time before.
    ///
    /// # Errors
    /// Those of the output.
    pub fn sample(&mut self, adapter: Adapter, sample: &Sample) -> io::Result<()> {
        let last = self.printed.entry(adapter.name()).or_default();
        if sample.at < *last + self.between_lines {
            return Ok(());
        }
        *last = sample.at;
        let Figures { memory, descriptors, tasks, connections, .. } = sample.figures;
        writeln!(
            self.out,
            "{adapter:9} {:7.1} s  {:>10} operations  {:>7} KiB  {:>4} descriptors  {tasks:>4} tasks  {connections:>3} connections",
            sample.at.as_secs_f64(),
            sample.operations,
            or_unknown(memory.map(|bytes| bytes / 1024)),
            or_unknown(descriptors),
        )?;
        self.out.flush()
    }

    /// Prints the table, and what is wrong; returns how much that is.
    ///
    /// # Errors
    /// Those of the output.
    pub fn table(&mut self, plan: &Plan, columns: &[Column]) -> io::Result<usize> {
        if columns.is_empty() {
            return Ok(0);
        }
        writeln!(self.out)?;
        self.row("", columns, |(adapter, _)| adapter.to_string())?;
        self.operations(plan, columns)?;
        self.errors(columns)?;
        self.recoveries(columns)?;
        self.pool(columns)?;
        self.figures(columns)?;
        let mut count = 0;
        writeln!(self.out)?;
        for (adapter, ended) in columns {
            for finding in findings(&ended.run, &ended.samples) {
                writeln!(self.out, "FAIL {adapter}: {finding}")?;
                count += 1;
            }
        }
        match count {
            0 => writeln!(self.out, "nothing is left over")?,
            1 => writeln!(self.out, "1 finding")?,
            count => writeln!(self.out, "{count} findings")?,
        }
        self.out.flush()?;
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
        writeln!(self.out, "at the start / at most / at the end")?;
        for (name, figure) in figures {
            self.row(&format!("  {name}"), columns, |column| from_to(column, figure))?;
        }
        let growth = |(_, ended): &Column, text: fn(Growth) -> String| match Growth::of(&ended.samples) {
            Some(growth) => text(growth),
            None => "too few samples".to_owned(),
        };
        writeln!(self.out, "memory")?;
        self.row("  second quarter", columns, |column| growth(column, |it| format!("{} KiB", it.early / 1024)))?;
        self.row("  last quarter", columns, |column| growth(column, |it| format!("{} KiB", it.late / 1024)))?;
        let trend = |it: Growth| format!("{:+.1} KiB/min", it.per_minute / 1024.0);
        self.row("  trend of the last half", columns, |column| growth(column, trend))
    }

    fn row(&mut self, name: &str, columns: &[Column], cell: impl Fn(&Column) -> String) -> io::Result<()> {
        let cells: String = columns.iter().map(|column| format!("  {:>16}", cell(column))).collect();
        writeln!(self.out, "{name:41}{cells}")
    }
}

/// A value, or a dash where there is none.
fn or_unknown(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}
