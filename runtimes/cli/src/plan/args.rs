//! The command line of `plan`.

use clap::{Args, ValueEnum};
use cmap_core::options::{ClientOptions, ConnectionStringError, ServerMonitoringMode, Warning};

use super::deploy::Deploy;
use super::deployment::Deployment;
use super::sizes::Concurrency;

/// The application, its deployment, and what was measured.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The connection string of the application: its hosts, minPoolSize, maxPoolSize, loadBalanced, serverMonitoringMode and
    /// srvMaxHosts count
    #[arg(value_name = "URI")]
    pub(crate) uri: String,

    /// Processes of the application
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) processes: u32,

    /// Clients in each process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,

    /// Servers, where the connection string does not name them all. Without it: its hosts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) servers: Option<u32>,

    /// Most connections that all pools of a client have together (`Builder::max_connections`). Without it: no limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,

    /// How a new version replaces the old one
    #[arg(long, value_enum, value_name = "STRATEGY", default_value_t = Strategy::Rolling)]
    pub(crate) deploy: Strategy,

    /// Processes that `--deploy rolling` starts before it stops old ones, in percent of all
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) surge: u32,

    /// Connections that each server has from elsewhere: other applications, other members, people
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) others: u32,

    /// Connections that each server takes: its net.maxIncomingConnections, or what its provider allows
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u32>,

    /// Measured: connections that a client has in use at its busiest server, on average (`Stats::counts.in_use`, sampled)
    #[arg(long, value_name = "NUMBER", value_parser = positive, conflicts_with_all = ["rate", "hold"])]
    pub(crate) in_use: Option<f64>,

    /// Measured: check-outs of a client at its busiest server, in a second (the growth of `Stats::checked_out`)
    #[arg(long, value_name = "NUMBER", value_parser = positive, requires = "hold")]
    pub(crate) rate: Option<f64>,

    /// Measured: how long a connection stays checked out on average, in milliseconds
    #[arg(long, value_name = "MS", value_parser = positive, requires = "rate")]
    pub(crate) hold: Option<f64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// More than any pool holds, and few enough to compute with.
const MOST_IN_USE: f64 = 1e6;

/// The names of the strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// New processes start before old ones stop, some at a time
    Rolling,
    /// All new processes run before the old ones stop
    BlueGreen,
    /// All old processes stop before the new ones start
    Recreate,
}

/// The arguments do not describe a deployment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// The connection string is wrong.
    #[error(transparent)]
    Uri(#[from] ConnectionStringError),
    /// DNS would name the servers.
    #[error("a mongodb+srv connection string does not say how many servers there are: add --servers N")]
    NoServers,
    /// Rate and time multiply to more than any pool holds.
    #[error(
        "--rate times --hold is {mean:.0} connections in use at a time: give the figures of one client, and milliseconds"
    )]
    TooManyInUse {
        /// The product.
        mean: f64,
    },
    /// More hosts than servers.
    #[error("the connection string names {hosts} hosts, and --servers says {servers}: leave out --servers")]
    FewerServers {
        /// Those of the connection string.
        hosts: u32,
        /// The argument.
        servers: u32,
    },
}

impl PlanArgs {
    /// The deployment that the arguments describe.
    ///
    /// # Errors
    /// The connection string is wrong, or the number of servers is unknown.
    pub(crate) fn deployment(&self) -> Result<Deployment, PlanError> {
        let (options, _) = ClientOptions::parse(&self.uri)?;
        let hosts = u32::try_from(options.hosts.len()).unwrap_or(u32::MAX);
        let servers = match self.servers {
            Some(servers) if servers < hosts => return Err(PlanError::FewerServers { hosts, servers }),
            Some(servers) => servers,
            None if hosts == 0 => return Err(PlanError::NoServers),
            None => hosts,
        };
        let is_balanced = options.load_balanced == Some(true);
        Ok(Deployment {
            hosts: options.hosts.iter().map(ToString::to_string).collect(),
            servers,
            processes: self.processes,
            clients_per_process: self.clients,
            min_pool_size: options.pool.min_pool_size.unwrap_or(0),
            // Zero stands for no limit (CMAP-1).
            max_pool_size: Some(options.pool.max_pool_size.unwrap_or(100)).filter(|size| *size > 0),
            max_connections: self.max_connections,
            monitors: match options.server_monitoring_mode {
                _ if is_balanced => 0,
                Some(ServerMonitoringMode::Poll) => 1,
                _ => 2,
            },
            servers_of_client: options.srv.max_hosts.filter(|most| *most > 0).map_or(servers, |most| most.min(servers)),
            deploy: match self.deploy {
                Strategy::Rolling => Deploy::Rolling { surge_percent: self.surge },
                Strategy::BlueGreen => Deploy::BlueGreen,
                Strategy::Recreate => Deploy::Recreate,
            },
            others: self.others,
            limit: self.limit,
        })
    }

    /// The parts of the connection string that have no effect, or not the one that they seem to have.
    ///
    /// # Errors
    /// It is wrong.
    pub(crate) fn warnings(&self) -> Result<Vec<Warning>, PlanError> {
        Ok(ClientOptions::parse(&self.uri)?.1)
    }

    /// What was measured, if anything.
    ///
    /// # Errors
    /// More than a million connections would be in use.
    pub(crate) fn measured(&self) -> Result<Option<Concurrency>, PlanError> {
        let by_rate = || Some(Concurrency::of_rate(self.rate?, self.hold? / 1000.0));
        match self.in_use.map(Concurrency::of_mean).or_else(by_rate) {
            Some(measured) if measured.mean() > MOST_IN_USE => Err(PlanError::TooManyInUse { mean: measured.mean() }),
            measured => Ok(measured),
        }
    }
}

/// A number above zero, and not so large that it can only be a mistake.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= MOST_IN_USE => Ok(number),
        Ok(_) | Err(_) => Err("a number above 0, at most 1000000, is needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PlanArgs,
    }

    fn args(line: &str) -> PlanArgs {
        Line::try_parse_from(["plan"].into_iter().chain(line.split(' '))).unwrap().args
    }

    fn deployment(line: &str) -> Deployment {
        args(line).deployment().unwrap()
    }

    fn refusal(line: &str) -> String {
        args(line).deployment().unwrap_err().to_string()
    }

    #[test]
    fn the_connection_string_gives_servers_and_sizes() {
        let deployment = deployment("mongodb://u:p@a,b:1/?minPoolSize=3&maxPoolSize=7 --processes 4 --clients 2");

        assert_eq!(deployment.hosts, ["a:27017", "b:1"]);
        assert_eq!((deployment.servers, deployment.min_pool_size, deployment.max_pool_size), (2, 3, Some(7)));
        assert_eq!((deployment.clients(), deployment.monitors), (8, 2));
    }

    #[test]
    fn pools_have_the_defaults_of_the_specification_cmap_1() {
        let pools = |line| (deployment(line).min_pool_size, deployment(line).max_pool_size);

        assert_eq!(pools("mongodb://a/ --processes 1"), (0, Some(100)));
        assert_eq!(pools("mongodb://a/?maxPoolSize=0 --processes 1"), (0, None));
    }

    #[test]
    fn a_clients_own_limit_is_an_argument() {
        let limited = deployment("mongodb://a,b,c/ --processes 1 --max-connections 150");

        assert_eq!((limited.max_connections, limited.full_pool()), (Some(150), Some(100)));
    }

    #[test]
    fn a_load_balancer_has_no_monitor_and_a_polled_server_one_connection() {
        let monitors = |options| deployment(&format!("mongodb://a/?{options} --processes 1")).monitors;

        let counts = ["loadBalanced=true", "serverMonitoringMode=poll", "serverMonitoringMode=stream"].map(monitors);

        assert_eq!(counts, [0, 1, 2]);
    }

    #[test]
    fn dns_leaves_the_number_of_servers_to_the_caller() {
        let srv = "mongodb+srv://cluster.example.com/?srvMaxHosts=2 --processes 1";

        assert!(refusal(srv).contains("add --servers N"));
        let drawn = |servers| deployment(&format!("{srv} --servers {servers}"));
        assert_eq!([1, 2, 3].map(|servers| drawn(servers).servers_of_client), [1, 2, 2]);
        assert_eq!([1, 2, 3].map(|servers| drawn(servers).is_drawn()), [false, false, true]);
    }

    #[test]
    fn servers_may_be_more_than_the_seeds_and_not_fewer() {
        assert_eq!(deployment("mongodb://a/?replicaSet=rs --processes 1 --servers 5").servers, 5);
        assert!(refusal("mongodb://a,b/ --processes 1 --servers 1").contains("names 2 hosts"));
    }

    #[test]
    fn concurrency_is_measured_in_one_of_two_ways() {
        let measured = |line: &str| args(&format!("mongodb://a/ --processes 1{line}")).measured();

        assert_eq!(measured("").unwrap(), None);
        assert_eq!(measured(" --in-use 3.5").unwrap(), Some(Concurrency::of_mean(3.5)));
        assert_eq!(measured(" --rate 700 --hold 5").unwrap(), Some(Concurrency::of_mean(3.5)));
        assert!(measured(" --rate 1000000 --hold 1000000").is_err());
    }
}
