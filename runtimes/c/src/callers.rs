//! The calls of those who use connections.

use core::ffi::c_char;

use cmap_core::pool::{AffinityKey, Cancellation, Cause, CheckOutRequest, Clear};
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, CheckOut as Started, Criteria, Input};

use crate::ids::{self, CMAP_CANCELLED, CMAP_DELIVERED, CMAP_FINISHED, CheckOut, Connection};
use crate::memory::{Out, OutputSlot, read, service, text};
use crate::output::Output;
use crate::pool::{Pool, call, unexpected};

/// Asks for a connection. `*check_out` is the check-out; `*delivery` is CMAP_DELIVER if it was served at once, otherwise CMAP_NOTHING:
/// then CMAP_DELIVER or CMAP_FAIL comes among the outputs, exactly one of them, unless the check-out is given up. The delivery
/// comes there, too, if outputs were left when this was called. `check_out` may be that of `delivery`.
///
/// `deadline` is the caller's own limit, whatever waitQueueTimeoutMS says, or CMAP_NEVER. `affinity` is the key whose connection
/// is wanted (option affinity), or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_check_out(
    pool: *mut Pool,
    now: u64,
    deadline: u64,
    affinity: *const u64,
    check_out: *mut CheckOut,
    delivery: *mut Output,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let check_out = Out::at(check_out, "check_out")?;
            let delivery = OutputSlot::at(delivery, "delivery")?;
            let mut request = CheckOutRequest::default();
            request.deadline = (deadline != CMAP_NEVER).then_some(Instant::from_nanos(deadline));
            request.affinity = read(affinity, "affinity").ok().map(AffinityKey);
            let (begun, delivered) = state.machine.check_out(Instant::from_nanos(now), Criteria::WRITABLE, request);
            let Started::Started(begun) = begun else { return Err(unexpected()) };
            // In this order: `check_out` may be that of the output.
            delivery.set(Output::delivered(delivered));
            check_out.set(begun.into());
            Ok(())
        })
    }
}

/// Gives up a check-out, in any state. `*found` is CMAP_CANCELLED: it waited, and is over, without a CMAP_FAIL; CMAP_DELIVERED: it
/// has its connection, which was returned or is among the outputs, and has to be checked in; CMAP_FINISHED: it had ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_cancel_check_out(
    pool: *mut Pool,
    now: u64,
    check_out: *const CheckOut,
    found: *mut u32,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let check_out = read(check_out, "check_out")?.id()?;
            let found = Out::at(found, "found")?;
            match state.answered(now, Input::CancelCheckOut(Started::Started(check_out)), None)? {
                Answer::Cancellation(Cancellation::Cancelled) => found.set(CMAP_CANCELLED),
                Answer::Cancellation(Cancellation::Delivered) => found.set(CMAP_DELIVERED),
                Answer::Cancellation(Cancellation::Finished) => found.set(CMAP_FINISHED),
                Answer::Done | _ => return Err(unexpected()),
            }
            Ok(())
        })
    }
}

/// Ends a use of a connection: that of the check-out to which it was delivered. `condition` is CMAP_CONDITION_USABLE or
/// CMAP_CONDITION_ERRORED. `*delivery` is CMAP_DELIVER if the connection serves the next waiter at once, otherwise CMAP_NOTHING.
///
/// The socket is the pool's from now on; if the call fails it stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_check_in(
    pool: *mut Pool,
    now: u64,
    check_out: *const CheckOut,
    connection: *const Connection,
    socket: u64,
    condition: u32,
    delivery: *mut Output,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let check_out = read(check_out, "check_out")?.id()?;
            let connection = read(connection, "connection")?.handle()?;
            let condition = ids::condition(condition)?;
            let delivery = OutputSlot::at(delivery, "delivery")?;
            let now = Instant::from_nanos(now);
            let checked_in = state.machine.check_in(now, check_out, connection, socket, condition);
            let checked_in = checked_in.map_err(|refused| refused.misuse)?;
            delivery.set(Output::delivered(checked_in.delivery()));
            Ok(())
        })
    }
}

/// Says what a connection in use is for, which the text of a check-out that times out tells in load-balanced mode: CMAP_PURPOSE_...
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_set_purpose(
    pool: *mut Pool,
    check_out: *const CheckOut,
    connection: *const Connection,
    purpose: u32,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let check_out = read(check_out, "check_out")?.id()?;
            let connection = read(connection, "connection")?.handle()?;
            let set = Input::SetPurpose(check_out, connection, ids::purpose(purpose)?);
            let now = state.machine.now().as_nanos();
            state.make(now, set)
        })
    }
}

/// Makes all connections stale, pauses the pool, and fails every waiter. In load-balanced mode `service_id` is the id of the service
/// whose connections are meant, 12 bytes, and nothing is paused; elsewhere it is NULL. If `interrupts` is not 0, connections in use
/// and those that are being established are interrupted. `cause` is the error that led to it, for the errors of those who waited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_clear(
    pool: *mut Pool,
    now: u64,
    service_id: *const u8,
    interrupts: u32,
    cause: *const c_char,
    cause_length: usize,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let cause = Cause::new(text(cause, cause_length, "cause")?);
            let clear = match service(service_id) {
                Some(service) => Clear::service(service, cause),
                None => Clear::pool(cause),
            };
            state.make(now, Input::Clear(if interrupts == 0 { clear } else { clear.interrupting() }))
        })
    }
}

/// Forgets the connection of a key (option affinity).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_end_affinity(pool: *mut Pool, now: u64, key: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::EndAffinity(AffinityKey(key)))) }
}

/// No time: of a deadline, and of what time does not bring about. In the header it is UINT64_MAX.
pub const CMAP_NEVER: u64 = u64::MAX;
