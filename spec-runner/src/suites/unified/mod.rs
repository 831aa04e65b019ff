//! MongoDB's unified test format: what a whole client does, told by its events, its log messages and what is then on the
//! server.
//!
//! A [`format::UnifiedFile`] holds tests. Each is carried out by an [`Engine`]: [`engine`] is the one in virtual time, the
//! public client in a simulation, without a socket. [`operations`] does what the test says to its
//! [`entities`], with commands from [`data`] and [`cursor`]s; each client keeps a [`journal`]; [`verdict`] compares by the
//! rules in [`matching`].
//!
//! A test that needs what does not exist here is skipped by name and says what it needs: [`format`](mod@format) knows most of
//! it from the words of the test, and [`format::Deployment`] from the servers it is for.

mod attempt;
pub mod bulk_write;
pub mod client;
pub mod client_bulk_write;
pub mod commands;
pub mod contradictions;
pub mod cursor;
pub mod data;
pub mod engine;
pub mod entities;
pub mod failure;
pub mod format;
pub mod journal;
pub mod matching;
pub mod operations;
pub mod spans;
pub mod transaction;
pub mod verdict;
pub mod writes;

use alloc::rc::Rc;
use core::fmt;
use core::ops::RangeInclusive;

use self::client::{Client, Engine};
use self::engine::SimEngine;
use self::format::{Deployment, Setup, Test, UnifiedFile};
use self::operations::Running;
use crate::suites::outcome::{Outcome, Round};

/// Under how many seeds a test runs on each deployment but the first.
const SEEDS_OF_FURTHER: u64 = 5;

/// Why a test ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Something was not as expected.
    Failed(String),
    /// It needs something that does not exist here.
    Skipped(String),
}

impl Stop {
    /// Something was not as expected.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) => f.write_str(text),
            Self::Skipped(text) => write!(f, "skipped: {text}"),
        }
    }
}

/// Runs each test of `file` on each deployment that it is for: on the first under each of `seeds`, in their order, on the
/// others under the first few. The first seed that fails ends a test.
pub fn run(file: &UnifiedFile, seeds: RangeInclusive<u64>) -> impl Iterator<Item = (&str, Outcome)> {
    file.tests.iter().map(move |test| {
        let outcome = match prepare(file, test) {
            Err(reason) => Outcome::Skipped { reason },
            Ok((setup, test, deployments)) => run_test(setup, test, &deployments, seeds.clone()),
        };
        (test.description.as_str(), outcome)
    })
}

/// What a test begins with, and the servers that it gets; or why it cannot be run.
fn prepare<'f>(
    file: &'f UnifiedFile,
    test: &'f format::UnifiedTest,
) -> Result<(&'f Setup, &'f Test, Vec<Deployment>), String> {
    if let Some(reason) = contradictions::of_test(&test.description) {
        return Err(reason);
    }
    let content = test.content()?;
    if let Some(reason) = &content.skip_reason {
        return Err(format!("its file says: {reason}"));
    }
    let setup = file.setup()?;
    if setup.clients().filter(|client| client.observe_tracing_messages.is_some()).count() > 1 {
        return Err("has the spans of two clients, which nothing tells apart here".into());
    }
    let mut deployments = Deployment::all_for(&file.run_on, &content.run_on)?;
    deployments.retain(|deployment| !contradictions::is_of(&test.description, deployment.topology));
    Ok((setup, content, deployments))
}

fn run_test(setup: &Setup, test: &Test, deployments: &[Deployment], seeds: RangeInclusive<u64>) -> Outcome {
    // Chance shows most of what it can do on the first deployment.
    let few = *seeds.start()..=(*seeds.end()).min(seeds.start().saturating_add(SEEDS_OF_FURTHER - 1));
    let seeds_of = |place| if place == 0 { seeds.clone() } else { few.clone() };
    let places = deployments.iter().enumerate();
    let places = places.flat_map(|(place, deployment)| seeds_of(place).map(|seed| (*deployment, seed)));
    for (deployment, seed) in places {
        let engine = SimEngine::new(deployment, seed);
        let running = Rc::new(Running::new(engine.clone(), deployment.topology));
        let carry_out = || engine.run(carry_out(Rc::clone(&running), setup.clone(), test.clone()));
        let ended = match test.expect_tracing_messages.is_empty() {
            true => carry_out(),
            false => tracing::subscriber::with_default(running.spans.clone(), carry_out),
        };
        match ended.unwrap_or_else(|stuck| Err(vec![Stop::Failed(stuck)])) {
            Ok(()) => {}
            Err(stops) => {
                let skip = stops.iter().find_map(|stop| if let Stop::Skipped(text) = stop { Some(text) } else { None });
                if let Some(reason) = skip {
                    return Outcome::Skipped { reason: reason.clone() };
                }
                let place = format!("on {deployment}");
                let reasons = stops.iter().map(Stop::to_string).chain([place]).collect();
                return Outcome::Failed { round: Some(Round::Seed(seed)), reasons };
            }
        }
    }
    Outcome::Passed
}

/// Carries out a test from its first entity to its end, then closes its clients, however it went.
async fn carry_out<E: Engine>(running: Rc<Running<E>>, setup: Setup, test: Test) -> Result<(), Vec<Stop>> {
    let ended = begin_and_go_on(&running, &setup, &test).await;
    running.engine.settle().await;
    let reasons = match ended {
        Ok(()) => verdict::judge(&running, &test).into_iter().map(Stop::Failed).collect(),
        Err(stop) => vec![stop],
    };
    for thread in running.entities.threads() {
        thread.is_closed.set(true);
    }
    for caller in running.entities.clients() {
        caller.client.close().await;
    }
    running.entities.clear();
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

async fn begin_and_go_on<E: Engine>(running: &Rc<Running<E>>, setup: &Setup, test: &Test) -> Result<(), Stop> {
    for data in &setup.initial_data {
        running.engine.fill(data).map_err(|failure| Stop::failed(format!("the initial data: {failure}")))?;
    }
    for entity in &setup.entities {
        running.create(entity).await?;
    }
    for operation in &test.operations {
        Rc::clone(running).carry_out(operation.clone()).await?;
    }
    // A thread that the test does not wait for must still be as expected so far.
    match running.entities.threads().iter().find_map(|thread| thread.stop.take()) {
        Some(stop) => Err(stop),
        None => Ok(()),
    }
}
