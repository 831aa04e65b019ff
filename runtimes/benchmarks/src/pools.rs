//! cmap's pool beside others. Theirs hold numbers, ours sockets; only ours checks generations and idleness.

use std::fmt;
use std::time::Duration;

use cmap_runtime::Runtime as _;

use crate::contender::{Contender, SIZE, client};
use crate::figures::Rounds;
use crate::loads::{CANCELLED, LIMIT, Loads, OPERATIONS, On, TIMED};
use crate::peers::{TimedAsyncband, asyncband, deadpool};
use crate::report::{Report, Table};
use crate::server::Server;
use crate::{Harness, Threads};

/// How often every contender runs a load.
const ROUNDS: usize = 9;

/// How long a check-out waits, if it has a limit.
pub const USUAL: Duration = Duration::from_secs(30);

/// How many tasks contend.
const TASKS: [usize; 2] = [64, 10_000];

/// Our pool.
const OURS: &str = "cmap";

/// The pool whose speed ours must reach, where check-outs of both have a time-out.
const RIVAL: &str = "deadpool";

/// One line of the tables.
pub struct Line {
    name: &'static str,
    wait: Wait,
    pub(crate) loads: Box<dyn Loads>,
    /// The same kind of pool, with a time-out of [`LIMIT`].
    hurried: Option<Box<dyn Loads>>,
}

/// Whether a check-out reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It waits as long as it takes.
    ForEver,
    /// It waits for at most [`USUAL`].
    Limited,
}

impl Line {
    /// A pool called `name`.
    pub fn new<H: Harness>(name: &'static str, wait: Wait, pool: impl Contender) -> Self {
        Self { name, wait, loads: Box::new(On::<H, _>::new(pool)), hurried: None }
    }

    /// The same kind of pool with a time-out of [`LIMIT`].
    #[must_use]
    pub fn hurried<H: Harness>(mut self, pool: impl Contender) -> Self {
        self.hurried = Some(Box::new(On::<H, _>::new(pool)));
        self
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name == OURS
    }
}

/// Compares cmap's pool with those that belong to no runtime, and with `more`, which are made in the runtime.
pub fn compare<H: Harness>(
    name: &str,
    threads: Threads,
    server: &Server,
    report: &mut Report,
    more: impl FnOnce() -> Vec<Line>,
) {
    let lines = lines::<H>(server, more);
    println!("\n{name}: {SIZE} connections, {ROUNDS} rounds in turn, median (quartiles)");
    pairs(&lines);
    for tasks in TASKS {
        contention(name, threads, tasks, &lines, report);
    }
    cancellation(name, &lines, report);
    timeouts(&lines);
}

/// All contenders; cmap comes first.
pub(crate) fn lines<H: Harness>(server: &Server, more: impl FnOnce() -> Vec<Line>) -> Vec<Line> {
    H::block_on(async {
        let runtime = H::Runtime::current().unwrap();
        let mut lines = vec![
            Line::new::<H>(OURS, Wait::ForEver, client::<H::Runtime>(server, Duration::ZERO).await),
            Line::new::<H>(OURS, Wait::Limited, client::<H::Runtime>(server, USUAL).await)
                .hurried::<H>(client::<H::Runtime>(server, LIMIT).await),
            Line::new::<H>(RIVAL, Wait::ForEver, deadpool()),
            Line::new::<H>("asyncband", Wait::ForEver, asyncband()).hurried::<H>(TimedAsyncband {
                pool: asyncband(),
                runtime,
                limit: LIMIT,
            }),
        ];
        lines.extend(more());
        lines
    })
}

/// The figures of each line, measured in turn.
fn rounds(lines: &[Line], measure: impl Fn(&dyn Loads) -> f64) -> Vec<Rounds> {
    let mut all = vec![Rounds::default(); lines.len()];
    for _ in 0..ROUNDS {
        for (line, rounds) in lines.iter().zip(&mut all) {
            rounds.push(measure(&*line.loads));
        }
    }
    all
}

/// The figures of our pool with the same time-out, or none, as `line`.
fn ours<'a>(line: &Line, lines: &[Line], all: &'a [Rounds]) -> &'a Rounds {
    let is_ours = |other: &Line| other.is_ours() && other.wait == line.wait;
    &all[lines.iter().position(is_ours).unwrap()]
}

fn pairs(lines: &[Line]) {
    let all = rounds(lines, |loads| loads.pair());
    let mut table = Table::new(&["check-out and check-in", "ns of work", "cmap is faster ×"]);
    for (line, theirs) in lines.iter().zip(&all) {
        let ratio = theirs.ratio_to(ours(line, lines, &all));
        table.row([line.to_string(), theirs.show(0), ratio.show(2)]);
    }
    table.print("one task");
}

fn contention(name: &str, threads: Threads, tasks: usize, lines: &[Line], report: &mut Report) {
    let all = rounds(lines, |loads| loads.throughput(tasks, threads) / 1e6);
    let unit = match threads {
        Threads::One => "million in a second of work",
        Threads::Many => "million in a second",
    };
    let head = ["check-outs", unit, "cmap is faster ×", "waits: median / 99 % / at most"];
    let mut table = Table::new(&head);
    for (line, theirs) in lines.iter().zip(&all) {
        let ratio = ours(line, lines, &all).ratio_to(theirs);
        let waits = line.loads.waits(tasks);
        table.row([line.to_string(), theirs.show(2), ratio.show(2), waits.to_string()]);
        if line.name == RIVAL && line.wait == Wait::Limited {
            let least = match threads {
                Threads::One => 1.0,
                Threads::Many => 0.75,
            };
            let what = format_args!("{name}: {tasks} tasks check out at least {least} times as often as with {line}");
            report.bar(what, ratio.show(2), ratio.median() >= least);
        }
    }
    table.print(&format!("{name}: {tasks} tasks, {OPERATIONS} check-outs, a yield while holding"));
}

fn cancellation(name: &str, lines: &[Line], report: &mut Report) {
    let mut table = Table::new(&["ns of work each", "queue", "drop in order", "drop at random", "hand-offs lost"]);
    for line in lines {
        let it = line.loads.cancellation();
        let times = [it.queue, it.drop_in_order, it.drop_at_random].map(|time| format!("{time:.0}"));
        table.row([line.to_string()].into_iter().chain(times).chain([it.lost.to_string()]));
        if line.is_ours() {
            report.bar(format_args!("{name}: {line}: no hand-off is lost"), it.lost, it.lost == 0);
        }
    }
    table.print(&format!("{CANCELLED} futures queued and dropped"));
}

fn timeouts(lines: &[Line]) {
    let mut table = Table::new(&["", "late: median / 99 % / at most"]);
    for line in lines {
        let Some(hurried) = &line.hurried else { continue };
        table.row([line.name.into(), hurried.lateness().to_string()]);
    }
    table.print(&format!("{TIMED} wait for {LIMIT:?}, in vain"));
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            Wait::ForEver => f.write_str(self.name),
            Wait::Limited => write!(f, "{}, {USUAL:?}", self.name),
        }
    }
}
