//! What can be asked of a pool.

use core::ffi::c_char;

use cmap_core::time::Instant;
use cmap_core::topology::Input;

use crate::ids::{CheckOut, Connection};
use crate::memory::{Out, read};
use crate::pool::{Pool, State, call};
use crate::report;

/// The text of the pool's last failure. It is lent until the next call of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_problem(pool: *mut Pool, problem: *mut *const c_char, length: *mut usize) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe { call(pool, |state| lend(state, problem, length, |state| Ok(state.problem.clone()))) }
}

/// A small number of a check-out, by which a driver can keep its waiters in a table. No other check-out has it before this one ends: by
/// its failure, by its cancellation, or by the check-in of its connection. The result for NULL, and for what is no check-out, is
/// UINT32_MAX.
///
/// It is free again as soon as the call that fails the check-out was made: its CMAP_FAIL may still be among the outputs. Call
/// cmap_pool_handle_timeout and drain at the same `now` before cmap_pool_check_out, or use the bytes of the check-out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_check_out_index(check_out: *const CheckOut) -> u32 {
    // SAFETY: the pointer is as the header asks.
    let check_out = unsafe { read(check_out, "check_out") };
    let index = check_out.and_then(CheckOut::id).map(cmap_core::pool::CheckOutId::index);
    index.ok().and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX)
}

/// Whether the pool was cleared since the connection was created: `*is_stale` is 1 or 0. An error of a stale connection says nothing of
/// the server. A closed connection counts as stale, and so does one of another pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_is_stale(
    pool: *const Pool,
    connection: *const Connection,
    is_stale: *mut u32,
) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let connection = read(connection, "connection")?.handle()?;
            let is_stale = Out::at(is_stale, "is_stale")?;
            is_stale.set(state.pool()?.is_stale(connection).into());
            Ok(())
        })
    }
}

/// What the pool has done until `now`, as a JSON object: its state and generation, the connections by their states, marks and totals,
/// and, after cmap_pool_record_durations, how long everything took. It is lent until the next call of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_statistics(
    pool: *mut Pool,
    now: u64,
    json: *mut *const c_char,
    length: *mut usize,
) -> i32 {
    let now = Instant::from_nanos(now);
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| lend(state, json, length, |state| Ok(report::statistics(state.pool()?, now).to_string())))
    }
}

/// Who holds connections, who waits, and what is being established, as a JSON object. Check-outs are named by their
/// cmap_check_out_index. It is lent until the next call of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_holders(pool: *mut Pool, json: *mut *const c_char, length: *mut usize) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe { call(pool, |state| lend(state, json, length, |state| Ok(report::holders(state.pool()?).to_string()))) }
}

/// The state of the machine, for a report of a bug, as a JSON object whose form may change with each version. It is lent until the next
/// call of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_snapshot(pool: *mut Pool, json: *mut *const c_char, length: *mut usize) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe { call(pool, |state| lend(state, json, length, |state| report::snapshot(&state.machine))) }
}

/// Records from now on how long everything takes (not 0), or forgets what was recorded (0). Off at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_record_durations(pool: *mut Pool, on: u32) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe {
        call(pool, |state| {
            let now = state.machine.now().as_nanos();
            state.make(now, Input::RecordDurations(on != 0))
        })
    }
}

/// Lends a text.
///
/// # Safety
/// The pointers are NULL, or can be written to.
unsafe fn lend(
    state: &mut State,
    text: *mut *const c_char,
    length: *mut usize,
    make: impl FnOnce(&State) -> Result<String, crate::code::Failure>,
) -> Result<(), crate::code::Failure> {
    // SAFETY: as the caller has promised.
    let (text, length) = unsafe { (Out::at(text, "the place of the text")?, Out::at(length, "length")?) };
    let made = make(state)?;
    let (pointer, bytes) = state.lend(made.into_bytes());
    text.set(pointer);
    length.set(bytes);
    Ok(())
}
