//! From a server's address to the targets to connect to, looked up for each connection because addresses change.

use std::io;
use std::net::SocketAddr;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};

use crate::host::without_look_up;
use crate::names::Names;
use crate::net;
use crate::runtime::{Runtime, Target};

/// Every target of `address`, in the order to try them.
///
/// # Errors
/// The name cannot be resolved: an error of its own phase, without the labels of an overloaded server (CMAP-51).
pub(crate) async fn resolve<R: Runtime>(
    runtime: &R,
    names: &Names,
    address: &ServerAddress,
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
    let found = names.addresses(runtime, host, port).await.map_err(|error| unresolved(host, &error))?;
    if found.is_empty() {
        return Err(unresolved(host, &io::Error::other("the name has no addresses")));
    }
    Ok(found.into_iter().map(Target::Tcp).collect())
}

/// The error of a look-up: the name is wrong, or no resolver knew it. If this process has no descriptors left, no
/// resolver was asked, which says nothing of the host; that is an error of connecting like that of any socket.
fn unresolved(host: &str, error: &io::Error) -> EstablishError {
    match net::advice(error) {
        "" => EstablishError::new(
            Phase::Resolve,
            Fault::Network,
            format!("{host}: {error}; check the host name in the connection string"),
        ),
        advice => EstablishError::new(Phase::Connect, Fault::Network, format!("{host}: {error}{advice}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_process_without_descriptors_says_nothing_of_the_host() {
        let unknown = unresolved("db.example", &io::Error::other("no such name"));
        let exhausted = unresolved("db.example", &io::Error::from_raw_os_error(24));

        // CMAP-50, CMAP-51: the second has the labels that keep the pool from being cleared.
        assert_eq!((unknown.phase, exhausted.phase), (Phase::Resolve, Phase::Connect));
        assert!(exhausted.to_string().contains("ulimit -n"), "{exhausted}");
    }
}
