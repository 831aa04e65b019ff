//! A pool behind its pointer: one caller at a time, and no panic gets out.

use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cmap_core::pool::{Delivery, Pool as Machine};
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, Input, Topology, WarmUpId};
use cmap_core::trace::Recorded;

use crate::code::{CMAP_ERROR_BUSY, CMAP_ERROR_MISUSE, CMAP_ERROR_NULL, CMAP_ERROR_PANIC, CMAP_OK, Failure};

/// A pool. It serves one caller at a time, on any thread.
pub struct Pool {
    /// Whether a call is inside. No lock: who finds it set is sent away.
    is_busy: AtomicBool,
    state: UnsafeCell<State>,
}

/// The machine, and what calls of the library keep between them.
pub(crate) struct State {
    pub(crate) machine: Recorded<u64>,
    has_panicked: bool,
    /// Why the last call failed that did.
    pub(crate) problem: String,
    /// What is lent to the caller until the next call.
    lent: Vec<u8>,
    /// The warm-ups that have not ended, by the numbers that the driver has of them.
    pub(crate) warm_ups: BTreeMap<WarmUpId, u64>,
    pub(crate) last_warm_up: u64,
    /// Those who have checked out while calls were recorded, by their numbers in the recording.
    pub(crate) holders: BTreeMap<String, u32>,
}

/// A pool may be called on any thread.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<State>();
};

impl Pool {
    pub(crate) fn new(machine: Machine<u64>) -> Self {
        let state = State {
            machine: Topology::unmonitored(machine).into(),
            has_panicked: false,
            problem: String::new(),
            lent: vec![0],
            warm_ups: BTreeMap::new(),
            last_warm_up: 0,
            holders: BTreeMap::new(),
        };
        Self { is_busy: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Whether nobody else is inside, who would be sent away from now on.
    pub(crate) fn enter(&self) -> bool {
        !self.is_busy.swap(true, Ordering::Acquire)
    }

    fn leave(&self) {
        self.is_busy.store(false, Ordering::Release);
    }
}

/// Makes a call of a pool. The number that it returns, and the text of the pool's last failure, say what is wrong.
///
/// # Safety
/// The pointer is NULL, or to a pool that was not freed.
pub(crate) unsafe fn call(pool: *const Pool, body: impl FnOnce(&mut State) -> Result<(), Failure>) -> i32 {
    // SAFETY: as the caller has promised. A shared reference, since another thread may be inside.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return CMAP_ERROR_NULL };
    if !pool.enter() {
        return CMAP_ERROR_BUSY;
    }
    // SAFETY: one caller at a time has the flag, which was free until now and is ours until `leave`.
    let state = unsafe { &mut *pool.state.get() };
    let code = state.run(body);
    pool.leave();
    code
}

impl State {
    fn run(&mut self, body: impl FnOnce(&mut Self) -> Result<(), Failure>) -> i32 {
        if self.has_panicked {
            return CMAP_ERROR_PANIC;
        }
        match catch_unwind(AssertUnwindSafe(|| body(self))) {
            Ok(Ok(())) => CMAP_OK,
            Ok(Err(Failure { code, text })) => {
                self.problem.clear();
                self.problem.push_str(&text);
                code
            }
            // Nobody looks at the state any more.
            Err(_) => {
                self.has_panicked = true;
                CMAP_ERROR_PANIC
            }
        }
    }

    /// Makes a call that returns nothing.
    pub(crate) fn make(&mut self, now: u64, input: Input) -> Result<(), Failure> {
        self.answered(now, input, None).map(drop)
    }

    /// Makes a call that takes a connection's socket, and returns nothing.
    pub(crate) fn hand_in(&mut self, now: u64, input: Input, socket: u64) -> Result<(), Failure> {
        self.answered(now, input, Some(socket)).map(drop)
    }

    /// Makes a call. What it returned, if it was not refused.
    pub(crate) fn answered(&mut self, now: u64, input: Input, socket: Option<u64>) -> Result<Answer<u64>, Failure> {
        match self.machine.call(Instant::from_nanos(now), input, socket) {
            Answer::Misuse(misuse, _) => Err(misuse.into()),
            Answer::LimitsRefused(error) => Err(error.into()),
            answer @ (Answer::Done | _) => Ok(answer),
        }
    }

    /// The pool of the one server.
    pub(crate) fn pool(&self) -> Result<&Machine<u64>, Failure> {
        let (_, server) = self.machine.servers().next().ok_or_else(unexpected)?;
        Ok(server.pool())
    }

    /// Lends bytes to the caller until the next call of the pool, and drops those that were lent before. A zero follows them, which does
    /// not count.
    pub(crate) fn lend(&mut self, mut bytes: Vec<u8>) -> (*const c_char, usize) {
        let length = bytes.len();
        // A recording may be large: no more room than the zero takes.
        bytes.reserve_exact(1);
        bytes.push(0);
        self.lent = bytes;
        (self.lent.as_ptr().cast(), length)
    }
}

/// The connection that a call has delivered at once.
pub(crate) type Delivered = Option<Delivery<u64>>;

/// A call returned what it never returns.
pub(crate) fn unexpected() -> Failure {
    Failure::new(CMAP_ERROR_MISUSE, "the call was answered in an unexpected way: report this as a bug")
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;
    use crate::code::CMAP_ERROR_NOT_RECORDING;
    use crate::{
        cmap_pool_free, cmap_pool_new, cmap_pool_problem, cmap_pool_ready, cmap_pool_recording,
        cmap_pool_start_recording, cmap_pool_stop_recording,
    };

    fn new_pool() -> *mut Pool {
        let mut pool = ptr::null_mut();
        let address = "db.example:27017";
        // SAFETY: the address is a text, `pool` can be written, and there is no room for a problem.
        let made = unsafe {
            cmap_pool_new(address.as_ptr().cast(), address.len(), ptr::null(), 0, 0, &raw mut pool, ptr::null_mut(), 0)
        };
        assert_eq!(made, CMAP_OK);
        pool
    }

    /// Borrows the file of what is recorded: the code, and the length of the file.
    fn recording_of(pool: *mut Pool) -> (i32, usize) {
        let (mut bytes, mut length) = (ptr::null(), 0);
        // SAFETY: the pool is not freed yet, there is no trigger, and bytes and length can be written.
        let code = unsafe { cmap_pool_recording(pool, 0, ptr::null(), 0, &raw mut bytes, &raw mut length) };
        (code, length)
    }

    /// How many bytes a pool has reserved for what it lends.
    fn lent_by(pool: *mut Pool) -> usize {
        let mut lent = 0;
        let look = |state: &mut State| {
            lent = state.lent.capacity();
            Ok(())
        };
        // SAFETY: the pool is not freed yet.
        assert_eq!(unsafe { call(pool, look) }, CMAP_OK);
        lent
    }

    #[test]
    fn a_pool_keeps_nothing_of_a_recording_that_was_lent_before_another_text() {
        let pool = new_pool();
        let (mut text, mut length) = (ptr::null(), 0);
        // SAFETY: the pool is freed last, and text and length can be written.
        unsafe {
            assert_eq!(cmap_pool_start_recording(pool, 0), CMAP_OK);
            let (code, file) = recording_of(pool);
            assert_eq!(code, CMAP_OK);
            assert!(lent_by(pool) > file);

            assert_eq!(cmap_pool_problem(pool, &raw mut text, &raw mut length), CMAP_OK);

            assert!(lent_by(pool) < file, "{} of {file} bytes", lent_by(pool));
            cmap_pool_free(pool);
        }
    }

    #[test]
    fn a_pool_keeps_nothing_of_a_recording_that_was_stopped() {
        let pool = new_pool();
        // SAFETY: the pool is freed last.
        unsafe {
            assert_eq!(cmap_pool_start_recording(pool, 0), CMAP_OK);
            let (code, file) = recording_of(pool);
            assert_eq!(code, CMAP_OK);

            assert_eq!(cmap_pool_stop_recording(pool), CMAP_OK);

            assert!(lent_by(pool) < file, "{} of {file} bytes", lent_by(pool));
            cmap_pool_free(pool);
        }
    }

    #[test]
    fn a_recording_that_was_frozen_is_forgotten_when_it_is_stopped() {
        let pool = new_pool();
        let freeze = |state: &mut State| {
            state.machine.freeze("a bug".to_owned());
            Ok(())
        };
        // SAFETY: the pool is freed last.
        unsafe {
            assert_eq!(cmap_pool_start_recording(pool, 0), CMAP_OK);
            assert_eq!(call(pool, freeze), CMAP_OK);
            assert_eq!(recording_of(pool).0, CMAP_OK);

            assert_eq!(cmap_pool_stop_recording(pool), CMAP_OK);

            assert_eq!(recording_of(pool).0, CMAP_ERROR_NOT_RECORDING);
            cmap_pool_free(pool);
        }
    }

    #[test]
    fn a_pool_that_has_panicked_answers_so_until_it_is_freed() {
        let pool = new_pool();
        let (mut text, mut length) = (ptr::null(), 0);
        // SAFETY: the pool is freed last, and text and length can be written.
        unsafe {
            assert_eq!(call(pool, |_| panic!("a bug")), CMAP_ERROR_PANIC);
            assert_eq!(cmap_pool_ready(pool, 1), CMAP_ERROR_PANIC);
            assert_eq!(cmap_pool_problem(pool, &raw mut text, &raw mut length), CMAP_ERROR_PANIC);
            cmap_pool_free(pool);
        }
        assert!(text.is_null());
    }

    #[test]
    fn a_call_into_a_pool_with_a_call_inside_is_sent_away() {
        let pool = new_pool();
        // SAFETY: the pool is freed last.
        unsafe {
            let inner = |_: &mut State| {
                assert_eq!(cmap_pool_ready(pool, 1), CMAP_ERROR_BUSY);
                // It would take the pool from under the outer call.
                cmap_pool_free(pool);
                Ok(())
            };
            assert_eq!(call(pool, inner), CMAP_OK);
            assert_eq!(cmap_pool_ready(pool, 1), CMAP_OK);
            cmap_pool_free(pool);
        }
    }
}
