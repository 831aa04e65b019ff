//! The versions of the wire protocol that this client speaks (SDAM-19).

use alloc::string::String;

/// The lowest maxWireVersion that this client talks to: that of MongoDB 4.2 (SDAM-19).
pub const MIN_WIRE_VERSION: i32 = 8;
/// The highest minWireVersion that this client talks to.
pub const MAX_WIRE_VERSION: i32 = 29;

/// Why this client cannot talk to a server that speaks the protocol's versions from the oldest to the newest given
/// here.
pub(crate) fn incompatibility((oldest, newest): (i32, i32)) -> Option<String> {
    if newest < MIN_WIRE_VERSION {
        Some(alloc::format!(
            "the server speaks protocol versions up to {newest}, this client from {MIN_WIRE_VERSION} (MongoDB 4.2) on: \
             update the server"
        ))
    } else if oldest > MAX_WIRE_VERSION {
        Some(alloc::format!(
            "the server speaks protocol versions from {oldest} on, this client up to {MAX_WIRE_VERSION}: update the client"
        ))
    } else {
        None
    }
}
