//! What happens to a client and its servers, as data: options, operations and faults, drawn from a seed.

use std::fmt;
use std::time::Duration;

use cmap_core::random::Random;

use super::fault::{self, Fault};
use crate::tools::simulate::step::Deployment;

/// Everything that is up to chance in a run, but for the order of tasks and the network, which follow from the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) deployment: Deployment,
    /// Of the connection string. What is not named has the default of [`Plan::option`].
    pub(super) options: Vec<(&'static str, u64)>,
    pub(super) operations: Vec<Operation>,
    pub(super) faults: Vec<Fault>,
}

/// What a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// Who: a task of its own, which does one after the other.
    pub(super) caller: u64,
    /// Before it.
    pub(super) pause: Duration,
    pub(super) work: Work,
    pub(super) patience: Patience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A check-out, and a document read.
    Read(u64),
    /// The same with a server that need not be the primary.
    ReadNearest(u64),
    /// A check-out, and a document written.
    Write,
    /// A check-out, and two documents read; a pause between them.
    Hold(u64, Duration),
    /// A read that is tried again.
    Retried(u64),
    /// A document with this number, written by a majority and tried again: nobody else writes this number.
    Order(u64),
    /// All documents, through a cursor.
    Cursor,
}

/// How long a caller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    ToTheEnd,
    For(Duration),
    /// Its future is dropped when it is to be polled once more.
    Polls(u64),
}

/// The documents that can be read have these numbers, but for this one.
pub(super) const DOCUMENTS: u64 = 10;

const CALLERS: u64 = 6;

/// The least timeoutMS within which everybody is served if nothing goes wrong: others hold connections for 60 ms at most.
const AMPLE: u64 = 1000;

impl Plan {
    pub(super) fn of(seed: u64, deployment: Option<Deployment>, operations: usize) -> Self {
        let mut random = Random::new(!seed);
        let drawn = pick(&mut random, &Deployment::WITHOUT_DNS);
        let deployment = deployment.unwrap_or(drawn);
        let options = options(&mut random);
        let callers = random.up_to(CALLERS - 1) + 1;
        let hurry = random.up_to(3);
        // In one seed of four nobody gives up, and in another one nothing goes wrong.
        let gives_up = !one_in(&mut random, 4);
        let operations = (0..).zip(0..operations);
        let operations =
            operations.map(|(number, _)| operation(&mut random, number, callers, hurry, gives_up)).collect();
        let faults = fault::draw(&mut random, deployment, hurry);
        Self { seed, deployment, options, operations, faults }
    }

    /// An option of the connection string, or what it is if the seed leaves it alone.
    pub(super) fn option(&self, name: &str) -> u64 {
        let drawn = self.options.iter().find(|(drawn, _)| *drawn == name).map(|(_, value)| *value);
        drawn.unwrap_or(match name {
            "timeoutMS" => 2000,
            "maxPoolSize" => 100,
            "maxConnecting" => 2,
            _ => 0,
        })
    }

    /// Whether nothing goes wrong, and time is never short.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.option("timeoutMS") >= AMPLE
    }

    /// The options of the connection string.
    pub(super) fn query(&self) -> String {
        let mut always =
            format!("timeoutMS={}&heartbeatFrequencyMS=500&connectTimeoutMS=500", self.option("timeoutMS"));
        if self.deployment == Deployment::LoadBalanced {
            always.push_str("&loadBalanced=true");
        }
        let drawn = self.options.iter().filter(|(name, _)| *name != "timeoutMS");
        drawn.fold(always, |query, (name, value)| match *name {
            "serverMonitoringMode" => query + "&serverMonitoringMode=poll",
            "compressors" => query + "&compressors=zlib",
            name => query + &format!("&{name}={value}"),
        })
    }
}

/// Each is left alone in half of the seeds.
fn options(random: &mut Random) -> Vec<(&'static str, u64)> {
    let known: [(&str, &[u64]); 8] = [
        ("timeoutMS", &[300, 1000, 5000]),
        ("maxPoolSize", &[1, 2, 4]),
        ("minPoolSize", &[1]),
        ("maxConnecting", &[1, 3]),
        ("maxIdleTimeMS", &[20, 500]),
        ("localThresholdMS", &[0, 100]),
        ("serverMonitoringMode", &[1]),
        ("compressors", &[1]),
    ];
    let drawn = known.into_iter().filter_map(|(name, values)| {
        let value = pick(random, values);
        one_in(random, 2).then_some((name, value))
    });
    drawn.collect()
}

fn operation(random: &mut Random, number: u64, callers: u64, hurry: u64, gives_up: bool) -> Operation {
    let most = [0, 1, 20, 200][usize::try_from(hurry).unwrap_or_default()];
    let document = random.up_to(DOCUMENTS - 1);
    let work = match random.up_to(13) {
        0..=3 => Work::Read(document),
        4 | 5 => Work::ReadNearest(document),
        6 | 7 => Work::Write,
        8 => Work::Hold(document, micros(random, 30_000)),
        9 | 10 => Work::Retried(document),
        11 | 12 => Work::Order(number),
        _ => Work::Cursor,
    };
    let patience = match random.up_to(9) {
        0 | 1 if gives_up => Patience::For(micros(random, 5000)),
        2 if gives_up => Patience::Polls(random.up_to(5)),
        _ => Patience::ToTheEnd,
    };
    Operation { caller: random.up_to(callers - 1), pause: micros(random, most * 1000), work, patience }
}

pub(super) fn micros(random: &mut Random, most: u64) -> Duration {
    Duration::from_micros(random.up_to(most))
}

pub(super) fn one_in(random: &mut Random, number: u64) -> bool {
    random.up_to(number - 1) == 0
}

pub(super) fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    let last = from.len() as u64 - 1;
    from[usize::try_from(random.up_to(last)).unwrap_or_default()]
}

impl fmt::Display for Plan {
    /// The options, and one line for each operation and each fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} with {}", self.deployment.name(), self.query())?;
        for Operation { caller, pause, work, patience } in &self.operations {
            write!(f, "  caller {caller}, after {pause:?}: {work:?}")?;
            match patience {
                Patience::ToTheEnd => writeln!(f)?,
                Patience::For(time) => writeln!(f, ", given up after {time:?}")?,
                Patience::Polls(polls) => writeln!(f, ", given up after {polls} polls")?,
            }
        }
        self.faults.iter().try_for_each(|Fault { at, kind, server, lasts, seed }| {
            writeln!(f, "  at {at:?}: {kind:?} of server {server}, for {lasts:?}, with seed {seed}")
        })
    }
}
