//! What became of actions: of CMAP_CONNECT, CMAP_CHECK and CMAP_REFRESH.

use core::ffi::c_char;
use std::sync::Arc;

use cmap_core::connection::{EstablishError, SYSTEM_OVERLOADED_ERROR};
use cmap_core::pool::Cause;
use cmap_core::server::{OperationError, ServerDescription};
use cmap_core::topology::Input;

use crate::code::Failure;
use crate::ids::{self, Connection};
use crate::memory::{read, service, text};
use crate::pool::{Pool, call};

/// The hello of a connection of a load-balanced pool named its service: 12 bytes. Report it before cmap_pool_established.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_hello(
    pool: *mut Pool,
    now: u64,
    connection: *const Connection,
    service_id: *const u8,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            let service = service(service_id).ok_or_else(|| Failure::null("service_id"))?;
            let address = Arc::new(state.pool()?.address().clone());
            // Nothing is learned of a server behind a load balancer.
            let description = ServerDescription::unknown(address, Cause::new("load-balanced"));
            state.make(now, Input::Hello(connection, Some(service), Box::new(description)))
        })
    }
}

/// A connection was established. It serves a waiter or becomes available, or is closed (CMAP_CLOSE), if the pool was cleared or closed
/// meanwhile.
///
/// The socket is the pool's from now on; if the call fails it stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_established(
    pool: *mut Pool,
    now: u64,
    connection: *const Connection,
    socket: u64,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            state.hand_in(now, Input::Established(connection), socket)
        })
    }
}

/// Establishing a connection failed. The check-out that caused it fails, too, if it still waits.
///
/// `phase` is one of CMAP_PHASE_.., `fault` one of CMAP_FAULT_.., `server_code` the server's error code with CMAP_FAULT_SERVER, or 0.
/// `reaction` is CMAP_REACTION_BY_RULES or CMAP_REACTION_KEEP_POOL. The text is for people: it is escaped and cut, and must not have
/// a password in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_establish_failed(
    pool: *mut Pool,
    now: u64,
    connection: *const Connection,
    phase: u32,
    fault: u32,
    server_code: i32,
    reaction: u32,
    message: *const c_char,
    message_length: usize,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            let fault = ids::fault(fault, server_code)?;
            let error = EstablishError::new(ids::phase(phase)?, fault, text(message, message_length, "message")?);
            let error = match ids::keeps_pool(reaction)? {
                true => error.with_server_labels(vec![SYSTEM_OVERLOADED_ERROR.to_owned()]),
                false => error,
            };
            state.make(now, Input::EstablishFailed(connection, error))
        })
    }
}

/// The answer to CMAP_CHECK: a connection that is alive (not 0) is delivered; a dead one is closed (CMAP_CLOSE), and its waiter stays
/// at the head of the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_checked(
    pool: *mut Pool,
    now: u64,
    connection: *const Connection,
    is_alive: u32,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            state.make(now, Input::Checked(connection, is_alive != 0))
        })
    }
}

/// The answer to CMAP_REFRESH: the ping was answered in time.
///
/// The socket is the pool's from now on; if the call fails it stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_refreshed(
    pool: *mut Pool,
    now: u64,
    connection: *const Connection,
    socket: u64,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            state.hand_in(now, Input::Refreshed(connection), socket)
        })
    }
}

/// The answer to CMAP_REFRESH: the ping failed, or was not answered in time. The driver has closed the socket. The arguments are those
/// of cmap_pool_establish_failed; by the rules, only a network error clears the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_refresh_failed(
    pool: *mut Pool,
    now: u64,
    connection: *const Connection,
    fault: u32,
    server_code: i32,
    reaction: u32,
    message: *const c_char,
    message_length: usize,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            let cause = Cause::new(text(message, message_length, "message")?);
            let mut error = OperationError::new(ids::fault(fault, server_code)?, cause);
            error.is_overload = ids::keeps_pool(reaction)?;
            state.make(now, Input::RefreshFailed(connection, error))
        })
    }
}

/// The peer of a connection hung up. An available connection is closed at once, one in use at its check-in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_peer_closed(pool: *mut Pool, now: u64, connection: *const Connection) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            state.make(now, Input::PeerClosed(connection))
        })
    }
}
