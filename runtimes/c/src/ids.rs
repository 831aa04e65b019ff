//! Names of connections and check-outs, and the numbers that arguments can have.

use cmap_core::connection::{Fault, Phase};
use cmap_core::pool::{CheckOutId, Condition, Handle, Purpose};

use crate::code::{CMAP_ERROR_HANDLE, Failure};

/// A connection, as its pool knows it: copy it, compare it, and hand it back. All zeros are no connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Numbers without a meaning outside of the pool.
    pub opaque: [u64; 3],
}

/// A check-out, as its pool knows it: copy it, compare it, and hand it back. All zeros are no check-out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOut {
    /// Numbers without a meaning outside of the pool.
    pub opaque: [u64; 3],
}

/// A connection that comes back can be used again: its last reply has been read to the end.
pub const CMAP_CONDITION_USABLE: u32 = 1;
/// A connection that comes back must not be used again: a network error, a timeout, a broken reply, or an operation that was cut
/// off half-way.
pub const CMAP_CONDITION_ERRORED: u32 = 2;

/// A connection in use is for one operation, as it is at its delivery.
pub const CMAP_PURPOSE_OTHER: u32 = 1;
/// A connection in use is kept by a cursor.
pub const CMAP_PURPOSE_CURSOR: u32 = 2;
/// A connection in use is kept by a transaction.
pub const CMAP_PURPOSE_TRANSACTION: u32 = 3;

/// Establishing failed when the host's name was turned into addresses.
pub const CMAP_PHASE_RESOLVE: u32 = 1;
/// Establishing failed at a proxy.
pub const CMAP_PHASE_PROXY: u32 = 2;
/// Establishing failed when the socket connected.
pub const CMAP_PHASE_CONNECT: u32 = 3;
/// Establishing failed in the TLS handshake.
pub const CMAP_PHASE_TLS: u32 = 4;
/// Establishing failed at the first hello.
pub const CMAP_PHASE_HELLO: u32 = 5;
/// Establishing failed at authentication.
pub const CMAP_PHASE_AUTHENTICATE: u32 = 6;

/// Connecting, reading or writing failed, or the peer hung up.
pub const CMAP_FAULT_NETWORK: u32 = 1;
/// The peer did not answer in time.
pub const CMAP_FAULT_TIMEOUT: u32 = 2;
/// The server answered with an error.
pub const CMAP_FAULT_SERVER: u32 = 3;
/// Anything else: a certificate, a reply that breaks the protocol.
pub const CMAP_FAULT_OTHER: u32 = 4;

/// A failure clears the pool where the rules of Server Discovery and Monitoring say so: a driver without rules of its own.
pub const CMAP_REACTION_BY_RULES: u32 = 1;
/// A failure clears nothing, as one that the server labelled SystemOverloadedError: that error, or a driver that decides by itself
/// and calls cmap_pool_clear. With the option backoff, further connections come after pauses.
pub const CMAP_REACTION_KEEP_POOL: u32 = 2;

/// A check-out that was given up waited, and is over.
pub const CMAP_CANCELLED: u32 = 1;
/// A check-out that was given up has its connection: it was returned, or is among the outputs; check it in.
pub const CMAP_DELIVERED: u32 = 2;
/// What was given up had ended before.
pub const CMAP_FINISHED: u32 = 3;

impl From<Handle> for Connection {
    fn from(handle: Handle) -> Self {
        Self { opaque: handle.to_bits() }
    }
}

impl From<CheckOutId> for CheckOut {
    fn from(check_out: CheckOutId) -> Self {
        Self { opaque: check_out.to_bits() }
    }
}

impl Connection {
    pub(crate) fn handle(self) -> Result<Handle, Failure> {
        Handle::from_bits(self.opaque).ok_or_else(|| no_handle("connection"))
    }
}

impl CheckOut {
    pub(crate) fn id(self) -> Result<CheckOutId, Failure> {
        CheckOutId::from_bits(self.opaque).ok_or_else(|| no_handle("check_out"))
    }
}

fn no_handle(argument: &'static str) -> Failure {
    Failure::new(CMAP_ERROR_HANDLE, format!("{argument} is none: its bytes were not made by this library"))
}

pub(crate) fn condition(number: u32) -> Result<Condition, Failure> {
    match number {
        CMAP_CONDITION_USABLE => Ok(Condition::Usable),
        CMAP_CONDITION_ERRORED => Ok(Condition::Errored),
        _ => Err(Failure::range("condition", number)),
    }
}

pub(crate) fn purpose(number: u32) -> Result<Purpose, Failure> {
    match number {
        CMAP_PURPOSE_OTHER => Ok(Purpose::Other),
        CMAP_PURPOSE_CURSOR => Ok(Purpose::Cursor),
        CMAP_PURPOSE_TRANSACTION => Ok(Purpose::Transaction),
        _ => Err(Failure::range("purpose", number)),
    }
}

pub(crate) fn phase(number: u32) -> Result<Phase, Failure> {
    match number {
        CMAP_PHASE_RESOLVE => Ok(Phase::Resolve),
        CMAP_PHASE_PROXY => Ok(Phase::Proxy),
        CMAP_PHASE_CONNECT => Ok(Phase::Connect),
        CMAP_PHASE_TLS => Ok(Phase::Tls),
        CMAP_PHASE_HELLO => Ok(Phase::Hello),
        CMAP_PHASE_AUTHENTICATE => Ok(Phase::Authenticate),
        _ => Err(Failure::range("phase", number)),
    }
}

/// A fault; `code` is the server's, 0 if it gave none.
pub(crate) fn fault(number: u32, code: i32) -> Result<Fault, Failure> {
    match number {
        CMAP_FAULT_NETWORK => Ok(Fault::Network),
        CMAP_FAULT_TIMEOUT => Ok(Fault::Timeout),
        CMAP_FAULT_SERVER => Ok(Fault::Server { code: (code != 0).then_some(code) }),
        CMAP_FAULT_OTHER => Ok(Fault::Other),
        _ => Err(Failure::range("fault", number)),
    }
}

/// Whether the pool is to be kept.
pub(crate) fn keeps_pool(reaction: u32) -> Result<bool, Failure> {
    match reaction {
        CMAP_REACTION_BY_RULES => Ok(false),
        CMAP_REACTION_KEEP_POOL => Ok(true),
        _ => Err(Failure::range("reaction", reaction)),
    }
}
