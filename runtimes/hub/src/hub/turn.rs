//! What a command needs to go upstream: a place in the queue, and a connection.
//!
//! While no server suits the command, it has no place: during an election those that want the primary would have all of them, and keep
//! out those for which there is a server.

use core::time::Duration;
use std::sync::Arc;

use cmap_core::topology::Criteria;
use cmap_tokio::{CheckOutError, Connection};

use super::forward::Owner;
use super::gate::{NoPlace, Place};
use super::shared::Shared;
use super::track::{Phase, Track};
use crate::protocol::Class;

/// A place and a connection.
pub(super) struct Turn {
    pub(super) connection: Connection,
    _place: Place,
}

/// There is none.
pub(super) enum NoTurn {
    Place(NoPlace),
    Connection(CheckOutError),
}

impl NoTurn {
    /// Makes `waited`, which has the wait for a server that came before, the wait of the error.
    fn after(mut self, waited: Duration) -> Self {
        if let Self::Connection(CheckOutError::Selection(error)) = &mut self {
            Arc::make_mut(error).waited = waited;
        }
        self
    }
}

/// What the queue has to know of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) class: Class,
    pub(super) bytes: usize,
}

/// How long a command may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For its turn in the queue.
    pub(super) queue: Duration,
    /// From then on for a server and a connection to it, further turns included.
    pub(super) server: Duration,
}

/// Waits for both.
pub(super) async fn take(
    shared: &Shared,
    owner: &Owner,
    Claim { class, bytes }: Claim,
    criteria: &Criteria,
    patience: Patience,
    track: &Track,
) -> Result<Turn, NoTurn> {
    let mut place = shared.gate.enter(&owner.user, class, bytes, patience.queue).await.map_err(NoTurn::Place)?;
    let until = place.since() + patience.server;
    loop {
        track.enter(place.since(), Phase::Pool);
        let left = until.saturating_since(shared.now());
        tokio::select! {
            biased;
            connection = check_out(shared, owner, criteria, left) => {
                return connection.map(|connection| Turn { connection, _place: place });
            }
            () = shared.upstream.wait_until_none_suits(criteria) => {}
        }
        track.enter(shared.now(), Phase::Queue);
        let parked = place.park(bytes).map_err(NoTurn::Place)?;
        let is_there = tokio::time::timeout(left, shared.upstream.wait_until_one_suits(criteria)).await.is_ok();
        if !is_there {
            // It says what is known of the servers.
            let known = check_out(shared, owner, criteria, Duration::ZERO).await;
            known.map_err(|no_turn| no_turn.after(patience.server))?;
        }
        let left = until.saturating_since(shared.now());
        place = parked.resume(patience.queue.min(left)).await.map_err(NoTurn::Place)?;
    }
}

async fn check_out(
    shared: &Shared,
    owner: &Owner,
    criteria: &Criteria,
    patience: Duration,
) -> Result<Connection, NoTurn> {
    let check_out = shared.upstream.client.check_out_for_within(criteria.clone(), patience).label(&*owner.user);
    let check_out = match owner.identity {
        Some(identity) => check_out.identity(identity),
        None => check_out,
    };
    check_out.await.map_err(NoTurn::Connection)
}
