//! The servers of tests: an embedded one for each, or one that the user has named, for one test after the other.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cmap_cli::serve::{Host, HostedServer};
use cmap_core::options::{ClientOptions, ConnectionStringError};
use cmap_core::topology::TopologyType;
use cmap_runtime::bson::{RawDocument, rawdoc};
use cmap_runtime::{Client, CommandErrorKind};
use cmap_smol::Smol;
use cmap_test_server::{ServerConfig, ServerVersion};
use thiserror::Error;

use crate::suites::cmap::engine::users;
use crate::suites::cmap::format::{Case, Deployment};
use crate::suites::requirement::{Topology, Version};

/// Where the servers of tests come from.
#[derive(Debug)]
pub(in crate::suites::cmap::engine) struct Servers(Kind);

#[derive(Debug)]
enum Kind {
    /// Each test has an embedded server of its own.
    Embedded(Host),
    /// Each test has this one for itself: a fail point is the whole server's.
    Named { options: Box<ClientOptions>, answers: Answers, turn: Mutex<()> },
}

/// What a named server says of itself.
#[derive(Clone, Copy, Debug)]
struct Answers {
    deployment: Deployment,
    has_fail_points: bool,
}

/// There are no servers for tests.
#[derive(Debug, Error)]
pub enum ServersError {
    /// The connection string cannot be used.
    #[error("--uri: {0}")]
    Uri(#[source] Box<ConnectionStringError>),
    /// The named server does not answer.
    #[error("--uri: the server does not say what it is: {0}")]
    Unknown(#[source] Box<cmap_runtime::Error>),
    /// The operating system gave no thread or no socket.
    #[error("an embedded server did not start: {0}")]
    Io(#[from] io::Error),
}

/// A server that belongs to one test while the lease lives.
pub(super) struct Lease<'s> {
    options: ClientOptions,
    _server: Option<HostedServer>,
    _turn: Option<MutexGuard<'s, ()>>,
}

impl Servers {
    /// Embedded servers, inside this process.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub(in crate::suites::cmap::engine) fn embedded() -> Result<Self, ServersError> {
        Ok(Self(Kind::Embedded(Host::start()?)))
    }

    /// The server behind `uri`, which is asked what it is.
    ///
    /// # Errors
    /// The connection string cannot be used, or the server does not answer.
    pub(in crate::suites::cmap::engine) fn named(uri: &str) -> Result<Self, ServersError> {
        let options = parse(uri)?;
        let answers = smol::block_on(ask(&options)).map_err(|error| ServersError::Unknown(Box::new(error)))?;
        Ok(Self(Kind::Named { options: Box::new(options), answers, turn: Mutex::new(()) }))
    }

    pub(super) fn deployment(&self) -> Deployment {
        match &self.0 {
            Kind::Embedded(_) => Deployment::EMBEDDED,
            Kind::Named { answers, .. } => answers.deployment,
        }
    }

    /// Whether fail points can be set.
    pub(super) fn have_fail_points(&self) -> bool {
        match &self.0 {
            Kind::Embedded(_) => true,
            Kind::Named { answers, .. } => answers.has_fail_points,
        }
    }

    /// Whether a test's wishes about the server can be granted.
    pub(super) fn are_embedded(&self) -> bool {
        matches!(self.0, Kind::Embedded(_))
    }

    /// A server as `case` wants it. Waits for the named one until it is free.
    pub(super) fn lease(&self, case: &Case) -> Result<Lease<'_>, ServersError> {
        match &self.0 {
            Kind::Named { options, turn, .. } => {
                // A test that panicked has left the server as good as any other did.
                let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Lease { options: (**options).clone(), _server: None, _turn: Some(turn) })
            }
            Kind::Embedded(host) => {
                let server = host.serve(|address| {
                    let mut config = ServerConfig::new(address.to_string()).with_version(ServerVersion::V8_0);
                    config.authorization = case.server.auth;
                    config.users = users::at_server(case);
                    config.load_balanced = !case.server.service_ids.is_empty();
                    config
                })?;
                let login = users::login(case);
                let options = parse(&format!("mongodb://{login}{}/", server.address()))?;
                Ok(Lease { options, _server: Some(server), _turn: None })
            }
        }
    }
}

impl Lease<'_> {
    /// How to reach the server.
    pub(super) fn options(&self) -> &ClientOptions {
        &self.options
    }
}

fn parse(uri: &str) -> Result<ClientOptions, ServersError> {
    let parsed = ClientOptions::parse(uri);
    parsed.map(|(options, _)| options).map_err(|error| ServersError::Uri(Box::new(error)))
}

async fn ask(options: &ClientOptions) -> Result<Answers, cmap_runtime::Error> {
    let client = Client::<Smol>::with_options(options.clone()).await?;
    let mut connection = client.check_out().await?;
    let build = connection.run_command("admin", rawdoc! { "buildInfo": 1 }).await?;
    // Servers refuse the command as unknown unless they were started for tests, or to users who may not give it.
    let off = rawdoc! { "configureFailPoint": "failCommand", "mode": "off" };
    let has_fail_points = match connection.run_command("admin", off).await {
        Ok(_) => true,
        Err(error) if matches!(error.kind, CommandErrorKind::Server(_)) => false,
        Err(error) => return Err(error.into()),
    };
    let deployment = Deployment { version: version(&build), topology: topology(client.description().topology_type) };
    Ok(Answers { deployment, has_fail_points })
}

fn version(build: &RawDocument) -> Version {
    let mut version = [0; 3];
    let numbers = build.get_array("versionArray").into_iter().flatten();
    for (part, number) in version.iter_mut().zip(numbers) {
        *part = number.ok().and_then(|number| number.as_i32()).and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
    }
    Version(version)
}

fn topology(topology_type: TopologyType) -> Topology {
    match topology_type {
        TopologyType::LoadBalanced => Topology::LoadBalanced,
        TopologyType::Sharded => Topology::Sharded,
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => Topology::ReplicaSet,
        TopologyType::Unknown | TopologyType::Single | _ => Topology::Single,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_named_server_is_asked_what_it_is() {
        let host = Host::start().unwrap();
        let config = |address: SocketAddr| ServerConfig::new(address.to_string()).with_version(ServerVersion::V8_0);
        let server = host.serve(config).unwrap();

        let servers = Servers::named(&format!("mongodb://{}/", server.address())).unwrap();

        assert_eq!(servers.deployment(), Deployment::EMBEDDED);
        assert!(servers.have_fail_points());
    }

    #[test]
    fn a_topology_is_told_by_its_server() {
        assert_eq!(topology(TopologyType::ReplicaSetNoPrimary), Topology::ReplicaSet);
        assert_eq!(topology(TopologyType::Sharded), Topology::Sharded);
        assert_eq!(topology(TopologyType::LoadBalanced), Topology::LoadBalanced);
    }
}
