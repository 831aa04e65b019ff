//! The relay as programs have it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::BootId;
use cmap_runtime::{Clock, Runtime};
use thiserror::Error;
use tracing::{info, warn};

use crate::link::Link;
use crate::settings::Settings;
use crate::tunnels::SocketCounts;

/// A running relay: it keeps sockets of members parked at applications, until it is [drained](Self::drain), or dropped. Then all
/// its sockets are closed at once.
pub struct Relay<R: Runtime> {
    clock: Clock<R>,
    drain_timeout: Duration,
    links: Vec<Arc<Link<R>>>,
}

/// A relay cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An application is to get a member that is none of the relay's.
    #[error(
        "the application {application} names the member {member}, which is not among the members; add it there, or correct its name"
    )]
    UnknownMember {
        /// Where the application listens.
        application: ServerAddress,
        /// The member.
        member: ServerAddress,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes, which tell two runs of a relay apart; look at its random device")]
    Random(#[source] io::Error),
}

/// One member at one application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStatus {
    /// Where the application listens.
    pub application: ServerAddress,
    /// The member, by its name.
    pub member: ServerAddress,
    /// Its sockets there.
    pub sockets: SocketCounts,
}

/// How a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// Every connection was ended by its application or its member.
    Whole,
    /// The time was up, and so many connections were cut.
    Cut(usize),
}

impl<R: Runtime> Relay<R> {
    /// Starts a relay, in tasks of `runtime`. It goes on dialling an application that cannot be reached, so nothing that happens in the
    /// network is an error here.
    ///
    /// # Errors
    /// The settings contradict themselves, or the system has no random bytes.
    pub fn start(runtime: R, settings: &Settings) -> Result<Self, StartError> {
        let mut random = [0; 16];
        runtime.fill_random(&mut random).map_err(StartError::Random)?;
        let [boot, seeds] =
            [&random[..8], &random[8..]].map(|half| half.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
        let mut seeds = cmap_core::random::Random::new(seeds);
        let started = u64::try_from(runtime.unix_time().as_millis()).unwrap_or(u64::MAX);
        let boot = BootId { started, random: boot };
        let mut links = Vec::new();
        for application in settings.applications.iter().cloned().map(Arc::new) {
            for name in &application.members {
                let member = settings.members.iter().find(|member| member.name == *name).ok_or_else(|| {
                    StartError::UnknownMember { application: application.address.clone(), member: name.clone() }
                })?;
                let (application, limits) = (Arc::clone(&application), settings.limits.clone());
                links.push(Arc::new(Link::new(
                    runtime.clone(),
                    application,
                    member.clone(),
                    limits,
                    boot,
                    seeds.next_u64(),
                )));
            }
        }
        for link in &links {
            runtime.spawn(Arc::clone(link).run());
        }
        Ok(Self { clock: Clock::new(runtime), drain_timeout: settings.limits.drain_timeout, links })
    }

    /// How many sockets there are, of each member at each application.
    pub fn status(&self) -> Vec<LinkStatus> {
        let status = |link: &Arc<Link<R>>| LinkStatus {
            application: link.application().clone(),
            member: link.member().clone(),
            sockets: link.counts(),
        };
        self.links.iter().map(status).collect()
    }

    /// Ends the relay: parked sockets say that they go away, and connections in use go on until they end, or the drain timeout is up.
    /// Called in a task of the runtime.
    pub async fn drain(self) -> Drained {
        // Counted before anything is told to end: connections may end as soon as they hear of it.
        info!(in_use = self.in_use(), limit = ?self.drain_timeout, "draining");
        self.links.iter().for_each(|link| link.leave());
        let all_ended = async {
            for link in &self.links {
                link.ended().await;
            }
        };
        if self.clock.within(self.drain_timeout, all_ended).await.is_some() {
            info!("drained");
            return Drained::Whole;
        }
        let cut = self.in_use();
        if cut > 0 {
            warn!(cut, "the drain timeout is up; the connections that are left are cut");
        }
        self.links.iter().for_each(|link| link.stop());
        for link in &self.links {
            link.ended().await;
        }
        if cut > 0 { Drained::Cut(cut) } else { Drained::Whole }
    }

    fn in_use(&self) -> usize {
        self.links.iter().map(|link| link.counts().in_use).sum()
    }
}

impl<R: Runtime> Drop for Relay<R> {
    fn drop(&mut self) {
        self.links.iter().for_each(|link| link.stop());
    }
}
