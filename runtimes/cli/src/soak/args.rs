//! The command line of `soak`, and the plan that it makes.

use core::fmt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// How to soak.
#[derive(Args, Debug)]
pub(crate) struct SoakArgs {
    /// Whose client to soak; all of them at a time if it is left out
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Choice::All)]
    pub(crate) engine: Choice,

    /// How long, in minutes
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) minutes: u64,

    /// How long, in seconds instead of minutes
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seconds: Option<u64>,

    /// How many tasks share the client
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) tasks: u32,

    /// Kill and restart the server at this interval, in seconds; 0 is never
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) restart_every: u64,

    /// The client's maxPoolSize
    #[arg(long = "maxPoolSize", value_name = "N", default_value_t = 10)]
    pub(crate) max_pool_size: u32,

    /// A server of yours, which is not restarted; the database `soak` is written to
    #[arg(long, conflicts_with_all = ["restart_every", "max_pool_size"])]
    pub(crate) uri: Option<String>,

    /// Print the results as JSON, and nothing meanwhile
    #[arg(long)]
    pub(crate) json: bool,

    /// Decides which operations are made, and when; chosen at random and printed if it is left out
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// The adapters to soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// cmap-tokio.
    Tokio,
    /// cmap-async-std.
    AsyncStd,
    /// cmap-smol.
    Smol,
    /// All of them.
    All,
}

/// An adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Adapter {
    /// cmap-tokio.
    Tokio,
    /// cmap-async-std.
    AsyncStd,
    /// cmap-smol.
    Smol,
}

/// What every adapter is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    /// Decides which operations are made, and when.
    pub(crate) seed: u64,
    /// How long the tasks work.
    pub(crate) duration: Duration,
    /// How many there are.
    pub(crate) tasks: u32,
    /// The server.
    pub(crate) server: Server,
}

/// The server of a soak.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Server {
    /// Processes of this program, one after the other.
    Own {
        /// From one start to the next kill; `None` is never.
        restart_every: Option<Duration>,
        /// The client's maxPoolSize.
        max_pool_size: u32,
    },
    /// The user's.
    Named {
        /// Its connection string.
        uri: String,
    },
}

impl SoakArgs {
    /// The plan.
    ///
    /// # Errors
    /// There is no seed, and the operating system gives no random bytes.
    pub(crate) fn plan(&self) -> Result<Plan, getrandom::Error> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => {
                let mut bytes = [0; 4];
                getrandom::fill(&mut bytes)?;
                u32::from_le_bytes(bytes).into()
            }
        };
        let server = match &self.uri {
            Some(uri) => Server::Named { uri: uri.clone() },
            None => Server::Own {
                restart_every: (self.restart_every > 0).then(|| Duration::from_secs(self.restart_every)),
                max_pool_size: self.max_pool_size,
            },
        };
        let duration = Duration::from_secs(self.seconds.unwrap_or(60 * self.minutes));
        Ok(Plan { seed, duration, tasks: self.tasks, server })
    }

    /// The adapters.
    pub(crate) fn adapters(&self) -> Vec<Adapter> {
        match self.engine {
            Choice::Tokio => vec![Adapter::Tokio],
            Choice::AsyncStd => vec![Adapter::AsyncStd],
            Choice::Smol => vec![Adapter::Smol],
            Choice::All => vec![Adapter::Tokio, Adapter::AsyncStd, Adapter::Smol],
        }
    }
}

impl Adapter {
    /// Its name on the command line and in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tokio => "tokio",
            Self::AsyncStd => "async-std",
            Self::Smol => "smol",
        }
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
