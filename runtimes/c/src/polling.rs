//! What a pool wants: its outputs, and when to come back.

use cmap_core::pool::{Output as PoolOutput, TimeoutReason};
use cmap_core::topology::{Input, Output as TopologyOutput, TimeoutReason as Reason};

use crate::callers::CMAP_NEVER;
use crate::memory::{Out, OutputSlot};
use crate::output::Output;
use crate::pool::{Pool, State, call};

/// Nothing depends on time.
pub const CMAP_TIMEOUT_NONE: u32 = 0;
/// Outputs are left to poll: at once.
pub const CMAP_TIMEOUT_OUTPUTS: u32 = 1;
/// The time of a check-out that waits is up.
pub const CMAP_TIMEOUT_CHECK_OUT: u32 = 2;
/// Stale connections are available after a clear: at once.
pub const CMAP_TIMEOUT_PRUNE_STALE: u32 = 3;
/// A connection reaches maxIdleTimeMS.
pub const CMAP_TIMEOUT_PRUNE_IDLE: u32 = 4;
/// It is time to see whether the host was used.
pub const CMAP_TIMEOUT_HOST: u32 = 5;
/// Connections are missing to minPoolSize.
pub const CMAP_TIMEOUT_POPULATE: u32 = 6;
/// A pause after the refusal of an overloaded server ends.
pub const CMAP_TIMEOUT_BACKOFF: u32 = 7;
/// maxNewConnectionsPerSecond allows another connection.
pub const CMAP_TIMEOUT_CREATION_RATE: u32 = 8;
/// The life of a connection ends.
pub const CMAP_TIMEOUT_RETIRE: u32 = 9;
/// A connection is held no more for its keys.
pub const CMAP_TIMEOUT_HOLD: u32 = 10;
/// It is time to see whether a connection has to be refreshed.
pub const CMAP_TIMEOUT_REFRESH: u32 = 11;
/// A warm-up may go on.
pub const CMAP_TIMEOUT_WARM_UP: u32 = 12;
/// Another reason.
pub const CMAP_TIMEOUT_OTHER: u32 = 99;

/// Takes the next output: call it after each call, until `output->kind` is CMAP_NOTHING. `output->size` has to be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_poll_output(pool: *mut Pool, output: *mut Output) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let place = OutputSlot::at(output, "output")?;
            place.set(next(state));
            Ok(())
        })
    }
}

/// The next output of the pool. The topology's other outputs are for monitors, of which it has none.
fn next(state: &mut State) -> Output {
    while let Some(output) = state.machine.poll_output() {
        let output = match output {
            TopologyOutput::Pool { output: PoolOutput::Action(action), .. } => Output::of_action(state, action),
            TopologyOutput::Pool { output: PoolOutput::Event(event), .. } => Output::of_event(state, event),
            TopologyOutput::WarmedUp { warm_up, result } => {
                let number = state.warm_ups.remove(&warm_up).unwrap_or_default();
                Output::of_warm_up(state, number, result)
            }
            TopologyOutput::Selected { .. }
            | TopologyOutput::Reselecting { .. }
            | TopologyOutput::SelectionFailed { .. }
            | TopologyOutput::Selection(_)
            | TopologyOutput::ResolveSrv { .. }
            | TopologyOutput::Topology(_)
            | TopologyOutput::Server { .. }
            | TopologyOutput::Monitor { .. } => continue,
        };
        if output.kind != crate::output::CMAP_NOTHING {
            return output;
        }
    }
    Output::nothing()
}

/// When to call cmap_pool_handle_timeout: `*at`, or CMAP_NEVER; and why: `*reason`, one of CMAP_TIMEOUT_... Any call may change it. After
/// cmap_pool_handle_timeout and a drain it is later than that call's `now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_poll_timeout(pool: *const Pool, at: *mut u64, reason: *mut u32) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let (at, reason) = (Out::at(at, "at")?, Out::at(reason, "reason")?);
            let timeout = state.machine.poll_timeout();
            at.set(timeout.map_or(CMAP_NEVER, |timeout| timeout.at.as_nanos()));
            reason.set(timeout.map_or(CMAP_TIMEOUT_NONE, |timeout| number(timeout.reason)));
            Ok(())
        })
    }
}

/// When time alone changes something for check-outs that wait: `*at`, or CMAP_NEVER. For drivers in which those who wait call
/// cmap_pool_handle_timeout, and somebody else does so for the rest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_next_check_out_timeout(pool: *const Pool, at: *mut u64) -> i32 {
    // SAFETY: the pointers are as the header asks.
    unsafe {
        call(pool, |state| {
            let at = Out::at(at, "at")?;
            let next = state.pool()?.next_check_out_timeout();
            at.set(next.map_or(CMAP_NEVER, |next| next.as_nanos()));
            Ok(())
        })
    }
}

/// Whether there are events (not 0) or only actions (0). There are at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cmap_pool_observe(pool: *mut Pool, on: u32) -> i32 {
    // SAFETY: the pool is as the header asks.
    unsafe {
        call(pool, |state| {
            let now = state.machine.now().as_nanos();
            state.make(now, Input::Observe(on != 0))
        })
    }
}

fn number(reason: Reason) -> u32 {
    let Reason::Pool(_, reason) = reason else { return CMAP_TIMEOUT_OUTPUTS };
    match reason {
        TimeoutReason::Outputs => CMAP_TIMEOUT_OUTPUTS,
        TimeoutReason::CheckOut => CMAP_TIMEOUT_CHECK_OUT,
        TimeoutReason::PruneStale => CMAP_TIMEOUT_PRUNE_STALE,
        TimeoutReason::PruneIdle => CMAP_TIMEOUT_PRUNE_IDLE,
        TimeoutReason::HostTimeout => CMAP_TIMEOUT_HOST,
        TimeoutReason::Populate => CMAP_TIMEOUT_POPULATE,
        TimeoutReason::Backoff => CMAP_TIMEOUT_BACKOFF,
        TimeoutReason::CreationRate => CMAP_TIMEOUT_CREATION_RATE,
        TimeoutReason::Retire => CMAP_TIMEOUT_RETIRE,
        TimeoutReason::Hold => CMAP_TIMEOUT_HOLD,
        TimeoutReason::Refresh => CMAP_TIMEOUT_REFRESH,
        TimeoutReason::WarmUp => CMAP_TIMEOUT_WARM_UP,
        _ => CMAP_TIMEOUT_OTHER,
    }
}
