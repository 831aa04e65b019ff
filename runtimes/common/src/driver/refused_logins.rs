//! Logins that a server refused: which of them wait for the outcome of a rotation, and which was the last.

use cmap_core::connection::EstablishError;
use cmap_core::pool::{Cause, Handle};
use cmap_core::server::ServerId;

#[derive(Default)]
pub(super) struct RefusedLogins {
    /// The rotations under way.
    pub(super) rotations: u32,
    /// Those that wait for the end of a rotation.
    pub(super) held: Vec<(Handle, EstablishError)>,
    /// The server that refused one last, and its error.
    pub(super) last_refusal: Option<(ServerId, Cause)>,
}

impl RefusedLogins {
    /// How many refused logins wait.
    pub(super) fn entries(&self) -> usize {
        self.held.len()
    }
}
