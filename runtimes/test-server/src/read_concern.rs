//! Read concerns: which commands accept which, and where a server would refuse one.
//!
//! With one member every read returns the newest data, and every majority has it. Only `snapshot` would differ from
//! that; the store keeps no older states.

use super::failure::fail;
use super::request::Request;
use crate::store::CommandFailure;

/// The commands that can read from a snapshot.
const READS: [&str; 3] = ["aggregate", "distinct", "find"];

/// Refuses a read concern that the command, or this server, does not have.
pub(super) fn check(request: &Request<'_>, is_member: bool) -> Result<(), CommandFailure> {
    let level = match request.arguments.document("readConcern")? {
        Some(concern) => concern.text("level")?,
        None => None,
    };
    match level {
        None | Some("local" | "available" | "majority" | "linearizable") => Ok(()),
        Some("snapshot") if !READS.contains(&request.name) => {
            let name = request.name;
            Err(fail(72, format!("Command {name} does not support {{ readConcern: {{ level: \"snapshot\" }} }}")))
        }
        Some("snapshot") if !is_member => {
            Err(fail(123, "node needs to be a replica set member to use readConcern: snapshot"))
        }
        Some("snapshot") => Err(fail(115, "readConcern: snapshot is not supported by this test server")),
        Some(level) => Err(fail(2, format!("Enumeration value '{level}' for field 'readConcern.level' is not valid"))),
    }
}
