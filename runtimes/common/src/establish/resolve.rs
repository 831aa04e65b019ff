//! From a server's address to the targets to connect to, looked up for each connection because addresses change.

use std::io;
use std::net::SocketAddr;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};

use crate::names::Names;
use crate::names::host::without_look_up;
use crate::net;
use crate::runtime::{Runtime, Target};

/// Who has named a server by its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// The user, or DNS for the user.
    User,
    /// Another server of its deployment.
    Deployment,
}

impl NamedBy {
    /// What to do about a name that leads nowhere.
    fn advice(self) -> &'static str {
        match self {
            Self::User => "check the host name in the connection string",
            Self::Deployment => {
                "the set's configuration (rs.conf()) or DNS names this host: let this machine resolve it, or name the members \
                 otherwise there"
            }
        }
    }

    /// What to know about a name that the server's certificate does not have.
    #[cfg(feature = "__rustls")]
    pub(super) fn note(self) -> &'static str {
        match self {
            Self::User => "",
            Self::Deployment => "; the set's configuration (rs.conf()) or DNS names this host",
        }
    }
}

/// Every target of `address`, in the order to try them.
///
/// # Errors
/// The name cannot be resolved: an error of its own phase, without the labels of an overloaded server (CMAP-51).
pub(crate) async fn resolve<R: Runtime>(
    runtime: &R,
    names: &Names,
    address: &ServerAddress,
    named_by: NamedBy,
) -> Result<Vec<Target>, EstablishError> {
    let (host, port) = match address {
        ServerAddress::Tcp { host, port } => (host, *port),
        #[cfg(unix)]
        ServerAddress::Unix { path } => return Ok(vec![Target::Unix(path.into())]),
        #[cfg(not(unix))]
        ServerAddress::Unix { .. } => {
            return Err(EstablishError::new(Phase::Connect, Fault::Other, "this platform has no Unix sockets"));
        }
    };
    if let Some(known) = without_look_up(host) {
        return Ok(known.into_iter().map(|ip| Target::Tcp(SocketAddr::new(ip, port))).collect());
    }
    let found = names.addresses(runtime, host, port).await.map_err(|error| unresolved(host, &error, named_by))?;
    if found.is_empty() {
        return Err(unresolved(host, &io::Error::other("the name has no addresses"), named_by));
    }
    Ok(found.into_iter().map(Target::Tcp).collect())
}

/// The error of a look-up: the name is wrong, or no resolver knew it. If this process has no descriptors left, no
/// resolver was asked, which says nothing of the host; that is an error of connecting like that of any socket.
fn unresolved(host: &str, error: &io::Error, named_by: NamedBy) -> EstablishError {
    match net::advice(error) {
        "" => EstablishError::new(Phase::Resolve, Fault::Network, format!("{host}: {error}; {}", named_by.advice())),
        advice => EstablishError::new(Phase::Connect, Fault::Network, format!("{host}: {error}{advice}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_process_without_descriptors_says_nothing_of_the_host() {
        let unknown = unresolved("db.example", &io::Error::other("no such name"), NamedBy::User);
        let exhausted = unresolved("db.example", &io::Error::from_raw_os_error(24), NamedBy::User);

        // CMAP-50, CMAP-51: the second has the labels that keep the pool from being cleared.
        assert_eq!((unknown.phase, exhausted.phase), (Phase::Resolve, Phase::Connect));
        assert!(exhausted.to_string().contains("ulimit -n"), "{exhausted}");
    }

    #[test]
    fn a_name_that_leads_nowhere_is_blamed_on_whoever_has_written_it() {
        let text = |named_by| unresolved("db.example", &io::Error::other("no such name"), named_by).to_string();

        assert_eq!(
            text(NamedBy::User),
            "resolving the host name failed: db.example: no such name; check the host name in the connection string"
        );
        assert_eq!(
            text(NamedBy::Deployment),
            "resolving the host name failed: db.example: no such name; the set's configuration (rs.conf()) or DNS names this host: \
             let this machine resolve it, or name the members otherwise there"
        );
    }
}
