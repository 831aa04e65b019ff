//! The bytes of a client to the test server.

use cmap_core::time::Instant;
use cmap_test_server::{Peer, ServerConfig, ServerOutput, TestServer, User};

/// Lets a client send `data`, in pieces, and time pass.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut config = ServerConfig::new("localhost:27017");
    config.authorization = choice & 1 != 0;
    config.load_balanced = choice & 2 != 0;
    config.replica_set = (choice & 4 != 0).then(|| "set".into());
    config.iterations = (1, 1);
    config.users.push(User::with_password("user", "pencil"));
    let mut server = TestServer::new(config, Instant::ORIGIN);
    let client = server.accept(Instant::ORIGIN, Peer::default());
    let other = server.accept(Instant::ORIGIN, Peer::default());
    let mut now = Instant::ORIGIN;
    for piece in data.chunks(usize::from(choice / 8) * 8 + 1) {
        server.handle_bytes(now, client, piece);
        while let Some(output) = server.poll_output() {
            let (ServerOutput::Send { client, .. } | ServerOutput::HangUp { client }) = output else { continue };
            assert_ne!(client, other, "one client's bytes reached another");
        }
        if let Some(at) = server.poll_timeout() {
            now = now.max(at);
            server.handle_timeout(now);
            while server.poll_output().is_some() {}
            assert!(server.poll_timeout().is_none_or(|next| next > now), "the next timeout does not lie ahead");
        }
    }
}
