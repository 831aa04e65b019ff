//! The command line of `demo`.

use clap::Args;

/// What to show.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// A server of yours, which is only pinged and never stopped. Without it: this program serves, as a process of its own,
    /// which is stopped and started again
    #[arg(long)]
    pub(crate) uri: Option<String>,

    /// How long to play on each runtime, in seconds; a server that comes back may take longer
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
}
