//! The command line of `replay`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use cmap_core::trace::Question;

use super::what_if::WhatIf;

/// The trace, and what to print about it.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// The file that a recorder has written, or its JSON lines
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,

    /// Make all calls again and compare what they lead to; this is done without any option, too
    #[arg(long)]
    pub(crate) verify: bool,

    /// Print each call, what it returned and what followed
    #[arg(long, conflicts_with = "explain")]
    pub(crate) timeline: bool,

    /// Stop before the first call after this time: seconds since the client was made
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["explain", "json"])]
    pub(crate) until: Option<Duration>,

    /// Say why check-outs waited: `slowest`, `failures`, either with a number (`slowest:5`), or the number of the call that began one
    #[arg(long, value_name = "WAITS")]
    pub(crate) explain: Option<Explained>,

    /// Estimate the explained waits with other options: `maxConnecting=4`, several with commas between them, or `standard`;
    /// can be given more than once
    #[arg(long, value_name = "OPTIONS", requires = "explain")]
    pub(crate) what_if: Vec<WhatIf>,

    /// Print JSON: explanations, or without --explain the whole trace as lines, which `replay` reads, too
    #[arg(long, conflicts_with_all = ["verify", "timeline"])]
    pub(crate) json: bool,

    /// Write a copy in which hosts have other names, for those who must not know them
    #[arg(long, value_name = "OUT", conflicts_with_all = ["explain", "timeline", "json", "until"])]
    pub(crate) hash_hosts: Option<PathBuf>,

    /// Write what a sparse recorder would have kept of it: the waits and the counts, without the calls
    #[arg(long, value_name = "OUT", conflicts_with_all = ["explain", "timeline", "json", "until", "hash_hosts"])]
    pub(crate) sparse: Option<PathBuf>,

    /// Draw the whole trace for Perfetto (ui.perfetto.dev): a file of TrackEvents
    #[arg(long, value_name = "OUT", conflicts_with_all = ["explain", "timeline", "json", "until", "hash_hosts", "sparse"])]
    pub(crate) perfetto: Option<PathBuf>,

    /// Draw the whole trace on a page that needs no network
    #[arg(long, value_name = "OUT", conflicts_with_all = ["explain", "timeline", "json", "until", "hash_hosts", "sparse"])]
    pub(crate) html: Option<PathBuf>,
}

/// Which waits to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explained(pub(crate) Question);

/// How many are explained where no number is given.
const FEW: usize = 3;

impl FromStr for Explained {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (what, most) = match text.split_once(':') {
            Some((what, most)) => (what, most.parse().map_err(|_| format!("{most} is no number"))?),
            None => (text, FEW),
        };
        match what {
            "slowest" => Ok(Self(Question::Slowest(most))),
            "failures" => Ok(Self(Question::Failures(most))),
            call => call.parse().map(|call| Self(Question::Call(call))).map_err(|_| {
                format!("{call} is neither `slowest` nor `failures` nor the number of a call, which --timeline shows")
            }),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give seconds, such as 1.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
