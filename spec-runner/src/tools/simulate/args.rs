//! The command line of `simulate`.

use std::path::PathBuf;

use clap::Args;

use super::step::Deployment;
use super::world::Weather;

/// What to simulate.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    /// The seeds, from A up to, but without, B
    #[arg(long, value_name = "A..B", default_value = "0..10000", value_parser = seeds)]
    pub(super) seeds: Seeds,

    /// The deployment: standalone, replica-set, sharded, load-balanced or seed-list. Without it: each seed draws one
    #[arg(long, value_name = "NAME", value_parser = scenario)]
    pub(super) scenario: Option<Deployment>,

    /// The machine alone, every call judged. So it is without --whole-stack
    #[arg(long, overrides_with = "whole_stack")]
    machine: bool,

    /// The client as it is in production, on a simulated network, against the test server
    #[arg(long, overrides_with = "machine")]
    whole_stack: bool,

    /// Worlds of the machine without troubles and options, in which callers come and go: what a simulation costs by itself
    #[arg(long, conflicts_with = "whole_stack")]
    calm: bool,

    /// How many steps each seed has: by default 1000 of the machine, or 60 operations of the whole stack
    #[arg(long, value_name = "N")]
    pub(super) steps: Option<usize>,

    /// The folder for the trace of a seed that breaks a law
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) out: PathBuf,
}

impl SimulateArgs {
    pub(super) fn weather(&self) -> Weather {
        if self.calm { Weather::Calm } else { Weather::Drawn }
    }

    pub(super) fn is_of_whole_stack(&self) -> bool {
        self.whole_stack && !self.machine
    }
}

/// A range of seeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds {
    pub(super) first: u64,
    /// The first that is not among them.
    pub(super) end: u64,
}

impl Seeds {
    pub(super) fn count(self) -> u64 {
        self.end - self.first
    }
}

fn seeds(text: &str) -> Result<Seeds, String> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    match parsed {
        Some((first, end)) if first < end => Ok(Seeds { first, end }),
        _ => Err("expected two numbers, the lower one first, such as 0..10000".to_owned()),
    }
}

fn scenario(text: &str) -> Result<Deployment, String> {
    let known = Deployment::ALL.into_iter().find(|deployment| deployment.name() == text);
    known.ok_or_else(|| format!("expected {}", Deployment::ALL.map(Deployment::name).join(", ")))
}
