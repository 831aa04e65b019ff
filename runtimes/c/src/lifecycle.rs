//! The beginning and the end of a pool, and the version of the library.

use core::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cmap_core::address::{ParseAddressError, ServerAddress};
use cmap_core::pool::Pool as Machine;
use cmap_core::time::Instant;
use cmap_core::topology::Input;

use crate::code::{CMAP_ERROR_ADDRESS, CMAP_ERROR_PANIC, CMAP_OK, Failure};
use crate::memory::{Out, text};
use crate::options;
use crate::pool::{Pool, call};

/// The version of the library: its CMAP_VERSION_NUMBER.
#[unsafe(no_mangle)]
pub extern "C" fn cmap_version_number() -> u32 {
    const NUMBER: [&str; 3] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    NUMBER.iter().fold(0, |number, part| number * 1000 + part.parse::<u32>().unwrap_or_default())
}

/// Makes a pool for one server. It is paused, until cmap_pool_ready, and has an output: CMAP_EVENT_POOL_CREATED.
///
/// `address` is `host:port`, `[ipv6]:port` or the path of a Unix socket that ends in `.sock`. `options` are a JSON object, or
/// nothing: the connection string's names maxPoolSize, minPoolSize, maxIdleTimeMS, maxConnecting, waitQueueTimeoutMS and
/// loadBalanced, and this library's own, which the README lists. A name that is unknown is an error. Two pools of one address with the
/// same `now` need different options poolNumber: otherwise neither notices connections of the other, and CMAP_ERROR_FOREIGN_CONNECTION
/// does not come.
///
/// `*pool` is for cmap_pool_free. It is written only if the result is CMAP_OK. Otherwise `problem`, if it is not NULL, is filled with
/// the text that says why, cut to `problem_size` bytes, of which the last is a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_new(
    address: *const c_char,
    address_length: usize,
    options: *const c_char,
    options_length: usize,
    now: u64,
    pool: *mut *mut Pool,
    problem: *mut c_char,
    problem_size: usize,
) -> i32 {
    let make = || {
        // SAFETY: the pointers are as the header asks.
        let (place, address, options) = unsafe {
            (
                Out::at(pool, "pool")?,
                text(address, address_length, "address")?,
                text(options, options_length, "options")?,
            )
        };
        let wrong = |error: ParseAddressError| Failure::new(CMAP_ERROR_ADDRESS, error.to_string());
        let address: ServerAddress = address.parse().map_err(wrong)?;
        let machine = Machine::new(address, options::of_pool(options)?, Instant::from_nanos(now))?;
        place.set(Box::into_raw(Box::new(Pool::new(machine))));
        Ok(())
    };
    let panicked = |_| Err(Failure::new(CMAP_ERROR_PANIC, "a bug of the library"));
    match catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(panicked) {
        Ok(()) => CMAP_OK,
        Err(Failure { code, text }) => {
            let room = problem_size.saturating_sub(1);
            let end = (0..=text.len().min(room)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
            if !problem.is_null() && problem_size > 0 {
                // SAFETY: the header asks for `problem_size` bytes there, and `end` is less.
                unsafe {
                    text.as_ptr().cast::<c_char>().copy_to(problem, end);
                    problem.add(end).write(0);
                }
            }
            code
        }
    }
}

/// Frees a pool, with all that it has lent; NULL is ignored. Sockets that it holds are forgotten: close the pool before, and drain it.
/// A pool with a call inside, as in a process that was forked meanwhile, is left as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_free(pool: *mut Pool) {
    // SAFETY: the pointer is NULL, or to a pool that was not freed, as the header asks.
    let is_free = unsafe { pool.as_ref() }.is_some_and(Pool::enter);
    if is_free {
        // SAFETY: `cmap_pool_new` has made it from a box, and nobody else is inside or will ever be.
        let pool = unsafe { Box::from_raw(pool) };
        // One that has panicked may do so again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(pool)));
    }
}

/// The server answers: check-outs are served from now on. Does nothing unless the pool is paused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_ready(pool: *mut Pool, now: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::Ready)) }
}

/// Closes the pool: available connections are closed, and every waiter fails. Connections in use, and those that are being
/// established, are closed when they come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_close(pool: *mut Pool, now: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::Close)) }
}

/// The process is a child that was forked, and this pool was its parent's: all connections are forgotten (their CMAP_CLOSE says
/// which sockets to close here), every waiter fails, and the pool is paused unless it is behind a load balancer. Call it only if no thread
/// was inside the pool when the process was forked; otherwise make another pool, and leave this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_reset_after_fork(pool: *mut Pool, now: u64) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe { call(pool, |state| state.make(now, Input::ResetAfterFork)) }
}
