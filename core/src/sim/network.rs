//! The virtual network and the virtual server behind it: the fate of a connection attempt and of a command.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::fail_point::{Effect, FailPoint};
use crate::pool::{ConnectionId, IdentityId, ServiceId};
use crate::random::Random;

/// How the network treats new connections and the bytes sent on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkMode {
    /// Everything arrives.
    #[default]
    Up,
    /// Connecting is refused.
    Refuse,
    /// Nothing arrives, and no error says so.
    Hang,
    /// Connections are accepted and reset as soon as something is sent.
    Reset,
}

/// The way to the server.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// How it treats them.
    pub mode: NetworkMode,
    /// The shortest time of a round trip.
    pub latency: Duration,
    /// The most that chance adds to it.
    pub jitter: Duration,
}

/// The server at the other end, reduced to what connections notice.
#[derive(Clone, Debug, Default)]
pub struct VirtualServer {
    /// Its fail point.
    pub fail_point: FailPoint,
    /// Whether clients authenticate.
    pub auth: bool,
    /// The users beside that of the options whose logins it refuses.
    pub refused: Vec<IdentityId>,
    /// The services behind it, if it is a load balancer; connections reach them in turn.
    pub service_ids: Vec<ServiceId>,
    /// The application name that clients give.
    pub app_name: Option<String>,
}

impl Network {
    /// The time of one round trip.
    pub fn round_trip(&self, random: &mut Random) -> Duration {
        let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_add(Duration::from_nanos(random.up_to(jitter)))
    }
}

impl VirtualServer {
    /// The effect of the server's fail point on `command`.
    pub fn receive(&mut self, command: &str) -> Effect {
        self.fail_point.hit(command, self.app_name.as_deref())
    }

    /// The service that a connection reaches, in turn; none without a load balancer.
    pub fn service_of(&self, connection: ConnectionId) -> Option<ServiceId> {
        let count = self.service_ids.len() as u64;
        let turn = connection.get().checked_sub(1)?.checked_rem(count)?;
        self.service_ids.get(usize::try_from(turn).ok()?).copied()
    }
}
