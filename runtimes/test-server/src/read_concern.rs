//! Read concerns: which commands accept which, where a server would refuse one, and what a read waits for.
//!
//! The store keeps no older states but those of `snapshots`, so a read of what a majority has waits until a majority has all.

use bson::{RawBsonRef, Timestamp};

use super::cluster_time::ClusterTime;
use super::failure::fail;
use super::replica_set::ReplicaSet;
use super::request::Request;
use crate::store::{CommandFailure, code};

/// The commands that can read from a snapshot.
const READS: [&str; 3] = ["aggregate", "distinct", "find"];

/// Refuses a read concern that the command, or this server, does not have.
pub(super) fn check(request: &Request<'_>, is_member: bool) -> Result<(), CommandFailure> {
    if let Some(concern) = request.arguments.document("readConcern")?
        && concern.get("afterClusterTime").is_some()
        && concern.get("atClusterTime").is_some()
    {
        return Err(fail(code::INVALID_OPTIONS, "Can not specify both afterClusterTime and atClusterTime"));
    }
    match level(request)? {
        None | Some("local" | "available" | "majority" | "linearizable") => Ok(()),
        // A cursor reads from the snapshot that it was opened on, and sessions name it again.
        Some("snapshot") if request.name == "getMore" && is_member => Ok(()),
        Some("snapshot") if !READS.contains(&request.name) => {
            let name = request.name;
            Err(fail(72, format!("Command {name} does not support {{ readConcern: {{ level: \"snapshot\" }} }}")))
        }
        Some("snapshot") if !is_member => {
            Err(fail(123, "node needs to be a replica set member to use readConcern: snapshot"))
        }
        Some("snapshot") => Ok(()),
        Some(level) => Err(fail(2, format!("Enumeration value '{level}' for field 'readConcern.level' is not valid"))),
    }
}

/// Refuses a read that only the primary can answer elsewhere.
pub(super) fn check_member(request: &Request<'_>, set: &ReplicaSet) -> Result<(), CommandFailure> {
    match level(request)? {
        Some("linearizable") if !set.is_primary() => {
            Err(fail(code::NOT_WRITABLE_PRIMARY, "cannot satisfy linearizable read concern on non-primary node"))
        }
        _ => Ok(()),
    }
}

/// Whether a read has to wait until this member, or a majority, has got further. What is malformed does not wait.
pub(super) fn must_wait(request: &Request<'_>, set: &ReplicaSet, time: &ClusterTime) -> bool {
    let Ok(Some(concern)) = request.arguments.document("readConcern") else { return false };
    let needs_majority = matches!(level(request), Ok(Some("majority" | "linearizable" | "snapshot")));
    if needs_majority && set.view().committed() < set.position() {
        return true;
    }
    let after = concern.get("afterClusterTime");
    let Some(RawBsonRef::Timestamp(after @ Timestamp { .. })) = after else { return false };
    !set.is_primary() && !set.has_all() && !time.has_reached(after)
}

fn level<'a>(request: &Request<'a>) -> Result<Option<&'a str>, CommandFailure> {
    match request.arguments.document("readConcern")? {
        Some(concern) => concern.text("level"),
        None => Ok(None),
    }
}
