//! The notices for a service manager (systemd's `Type=notify`): a datagram to the socket that the environment names.

#[cfg(unix)]
use std::os::unix::net::UnixDatagram;

/// Tells the service manager, if there is one. It only waits for it, so a failure changes nothing for the relay.
pub(crate) fn tell(state: &str) {
    if let Err(error) = try_tell(state) {
        tracing::warn!(%error, state, "the service manager cannot be told; check NOTIFY_SOCKET");
    }
}

#[cfg(unix)]
fn try_tell(state: &str) -> std::io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    #[cfg(target_os = "linux")]
    if let Some(name) = path.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return socket.send_to_addr(state.as_bytes(), &address).map(drop);
    }
    socket.send_to(state.as_bytes(), path).map(drop)
}

#[cfg(not(unix))]
fn try_tell(_state: &str) -> std::io::Result<()> {
    Ok(())
}
