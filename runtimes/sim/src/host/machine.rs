//! What a process runs: one test server, or the members of a deployment, which know of each other.

use cmap_core::time::Instant;
use cmap_test_server::{ClientId, Deployment, DeploymentOutput, MemberId, Peer, ServerOutput, TestServer};

/// A machine that serves clients.
pub(super) trait Machine: Send + 'static {
    /// Where a client connects.
    type Door: Copy + Send + Sync + 'static;
    /// The name of a client.
    type Client: Copy + Ord + Send + Sync + 'static;

    fn accept(&mut self, now: Instant, door: Self::Door) -> Self::Client;
    fn handle_bytes(&mut self, now: Instant, client: Self::Client, bytes: &[u8]);
    fn handle_hang_up(&mut self, now: Instant, client: Self::Client);
    fn hold(&mut self, now: Instant, client: Self::Client);
    fn release(&mut self, now: Instant, client: Self::Client);
    fn handle_timeout(&mut self, now: Instant);
    /// The next instruction for a connection.
    fn poll_output(&mut self) -> Option<Told<Self::Client>>;
    fn poll_timeout(&self) -> Option<Instant>;
}

/// An instruction for a connection.
pub(super) enum Told<C> {
    Send(C, Vec<u8>),
    HangUp(C),
    /// Something that a simulation does not need.
    Nothing,
}

/// The address that servers see of all clients.
fn peer() -> Peer {
    Peer::at("the simulation")
}

impl Machine for TestServer {
    type Door = ();
    type Client = ClientId;

    fn accept(&mut self, now: Instant, (): ()) -> ClientId {
        self.accept(now, peer())
    }

    fn handle_bytes(&mut self, now: Instant, client: ClientId, bytes: &[u8]) {
        self.handle_bytes(now, client, bytes);
    }

    fn handle_hang_up(&mut self, now: Instant, client: ClientId) {
        self.handle_hang_up(now, client);
    }

    fn hold(&mut self, now: Instant, client: ClientId) {
        self.hold(now, client);
    }

    fn release(&mut self, now: Instant, client: ClientId) {
        self.release(now, client);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Told<ClientId>> {
        Some(match self.poll_output()? {
            ServerOutput::Send { client, bytes } => Told::Send(client, bytes),
            ServerOutput::HangUp { client } => Told::HangUp(client),
            _ => Told::Nothing,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

impl Machine for Deployment {
    type Door = MemberId;
    type Client = (MemberId, ClientId);

    fn accept(&mut self, now: Instant, member: MemberId) -> Self::Client {
        (member, self.accept(now, member, peer()))
    }

    fn handle_bytes(&mut self, now: Instant, (member, client): Self::Client, bytes: &[u8]) {
        self.handle_bytes(now, member, client, bytes);
    }

    fn handle_hang_up(&mut self, now: Instant, (member, client): Self::Client) {
        self.handle_hang_up(now, member, client);
    }

    fn hold(&mut self, now: Instant, (member, client): Self::Client) {
        self.hold(now, member, client);
    }

    fn release(&mut self, now: Instant, (member, client): Self::Client) {
        self.release(now, member, client);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Told<Self::Client>> {
        Some(match self.poll_output()? {
            DeploymentOutput::Server { member, output: ServerOutput::Send { client, bytes } } => {
                Told::Send((member, client), bytes)
            }
            DeploymentOutput::Server { member, output: ServerOutput::HangUp { client } } => {
                Told::HangUp((member, client))
            }
            // Hosts listen as the handle says.
            DeploymentOutput::Server { .. }
            | DeploymentOutput::Listen { .. }
            | DeploymentOutput::StopListening { .. }
            | _ => Told::Nothing,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}
