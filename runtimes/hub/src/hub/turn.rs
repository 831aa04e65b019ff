//! What a command needs to go upstream: a place in the queue, and a connection.
//!
//! While no server suits the command, it has no place: during an election those that want the primary would have all of them, and keep
//! out those for which there is a server. Nor has it one while there is no room for its reply.

use core::time::Duration;
use std::sync::Arc;

use cmap_core::time::Instant;
use cmap_core::topology::Criteria;
use cmap_tokio::{CheckOutError, Connection};

use super::forward::Owner;
use super::gate::{NoPlace, Place};
use super::shared::Shared;
use super::track::{Phase, Track};
use crate::protocol::{Class, Forward};

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
    /// Whether it waits until there is room for its reply.
    pub(super) needs_room: bool,
}

impl Claim {
    pub(super) fn of(forward: &Forward) -> Self {
        let Forward { request, class, .. } = forward;
        Self { class: *class, bytes: request.size(), needs_room: request.acknowledged && !request.only_lets_go() }
    }
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
    claim: Claim,
    criteria: &Criteria,
    patience: Patience,
    track: &Track,
) -> Result<Turn, NoTurn> {
    let Claim { class, bytes, .. } = claim;
    let turn_by = shared.now() + patience.queue;
    let place = shared.gate.enter(&owner.user, class, bytes, patience.queue).await.map_err(NoTurn::Place)?;
    let mut place = with_room(shared, owner, claim, place, turn_by).await.map_err(NoTurn::Place)?;
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
        let left = patience.queue.min(until.saturating_since(shared.now()));
        let turn_by = shared.now() + left;
        let resumed = parked.resume(left).await.map_err(NoTurn::Place)?;
        place = with_room(shared, owner, claim, resumed, turn_by).await.map_err(NoTurn::Place)?;
    }
}

/// The place, once there is room for the command's reply, by `turn_by`. Until then others have it.
async fn with_room(
    shared: &Shared,
    owner: &Owner,
    claim: Claim,
    mut place: Place,
    turn_by: Instant,
) -> Result<Place, NoPlace> {
    while claim.needs_room && !shared.purse.has_room_for_reply(&owner.user) {
        let parked = place.park(claim.bytes)?;
        let left = turn_by.saturating_since(shared.now());
        let room = tokio::time::timeout(left, shared.purse.wait_for_room(&owner.user)).await;
        room.map_err(|_| NoPlace::NoRoom)?;
        place = parked.resume(turn_by.saturating_since(shared.now())).await?;
    }
    Ok(place)
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
