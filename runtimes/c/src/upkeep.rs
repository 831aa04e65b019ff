//! Time, new limits, and what renews the connections of a pool.

use core::ffi::c_char;
use core::time::Duration;

use cmap_core::time::Instant;
use cmap_core::topology::{Answer, Criteria, Input};

use crate::ids::{CMAP_CANCELLED, CMAP_FINISHED};
use crate::memory::{Out, text};
use crate::options;
use crate::pool::{Pool, call, unexpected};

/// Time has passed: does what is due. Early calls are harmless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_handle_timeout(pool: *mut Pool, now: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::Timeout)) }
}

/// Gives the pool new limits: a JSON object with any of maxPoolSize, minPoolSize, maxConnecting, maxWaitQueueDepth,
/// maxNewConnectionsPerSecond and checkAfterIdleMS. The others stay as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_resize(
    pool: *mut Pool,
    now: u64,
    limits: *const c_char,
    limits_length: usize,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let limits = options::limits(text(limits, limits_length, "limits")?)?;
            state.make(now, Input::Resize(limits))
        })
    }
}

/// Ends the lives of all connections that there are, evenly over `over_nanos`. Those in use are closed when they come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_replace_connections(pool: *mut Pool, now: u64, over_nanos: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::ReplaceConnections(Duration::from_nanos(over_nanos)))) }
}

/// The credential was replaced: the connections of the old one retire, and what is established from now on has the new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_renew_credential(pool: *mut Pool, now: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::RenewCredential(None))) }
}

/// The machine was suspended, and goes on: available connections are checked before their next use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_resume(pool: *mut Pool, now: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::Resume)) }
}

/// Has as many connections established as `connections` says, or minPoolSize with UINT32_MAX. `*warm_up` is its number; its end is the
/// output CMAP_WARMED_UP with that number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_warm_up(pool: *mut Pool, now: u64, connections: u32, warm_up: *mut u64) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let place = Out::at(warm_up, "warm_up")?;
            let connections = (connections != u32::MAX).then_some(connections);
            let id = state.machine.warm_up(Instant::from_nanos(now), Criteria::WRITABLE, connections);
            state.last_warm_up += 1;
            state.warm_ups.insert(id, state.last_warm_up);
            place.set(state.last_warm_up);
            Ok(())
        })
    }
}

/// Gives up a warm-up. `*found` is CMAP_CANCELLED, or CMAP_FINISHED: it had ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_cancel_warm_up(pool: *mut Pool, now: u64, warm_up: u64, found: *mut u32) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let found = Out::at(found, "found")?;
            let known = state.warm_ups.iter().find(|(_, number)| **number == warm_up).map(|(id, _)| *id);
            let Some(id) = known else {
                found.set(CMAP_FINISHED);
                return Ok(());
            };
            match state.answered(now, Input::CancelWarmUp(id), None)? {
                Answer::WarmUpCancelled(Some(_)) => {
                    state.warm_ups.remove(&id);
                    found.set(CMAP_CANCELLED);
                }
                Answer::WarmUpCancelled(None) => found.set(CMAP_FINISHED),
                Answer::Done | _ => return Err(unexpected()),
            }
            Ok(())
        })
    }
}
