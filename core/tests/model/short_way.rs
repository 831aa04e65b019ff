//! The short ways past the outputs lead to where the long ones do.
//!
//! Each is tried on a copy of the pool that nobody listens to, beside the long way on another.

use cmap_core::pool::{Action, CheckOutRequest, Condition, Delivery, Handle, Output, Pool};
use cmap_core::time::Instant;

use super::laws::{Broken, check};

/// [`Pool::try_check_out`] hands over a connection if, and only if, its delivery is all that comes of a check-out.
pub(crate) fn of_check_out(pool: &Pool<()>, now: Instant, request: CheckOutRequest) -> Result<(), Broken> {
    let before = unobserved(pool);
    let (mut short, mut long) = (before.clone(), before.clone());
    let delivery = short.try_check_out(now, request);
    let check_out = long.check_out(now, request);
    let outputs = drain(&mut long);
    let expected = match outputs.as_slice() {
        &[Output::Action(Action::Deliver { check_out: of, connection, socket })] if of == check_out => {
            Some(Delivery { check_out, connection, socket })
        }
        _ => None,
    };
    check("the short way is taken where it can be", delivery == expected, (delivery.as_ref(), "expected", &expected))?;
    // Whole states take long to compare.
    if pool.stats().check_outs_started.is_multiple_of(8) {
        let expected = if delivery.is_some() { &long } else { &before };
        let same = state(&short) == state(expected);
        check("a short check-out leads to where a long one does", same, (&short, "expected", expected))?;
    }
    let (before, after) = (before.poll_timeout(), short.poll_timeout());
    let no_earlier = after.is_none_or(|after| before.is_some_and(|before| before.at <= after.at));
    check("a short check-out brings no deadline forward", no_earlier, (before, after))
}

/// A check-in without outputs brings no deadline before [`Pool::idle_until`].
pub(crate) fn of_check_in(pool: &Pool<()>, now: Instant, connection: Handle, how: Condition) -> Result<(), Broken> {
    let mut pool = unobserved(pool);
    let before = pool.poll_timeout();
    if pool.check_in(now, connection, (), how).is_err() || !pool.is_drained() {
        return Ok(());
    }
    let (after, until) = (pool.poll_timeout(), pool.idle_until(now));
    let bounds = [before.map(|before| before.at), until];
    let no_earlier = after.is_none_or(|after| bounds.into_iter().flatten().any(|bound| bound <= after.at));
    check("a check-in without outputs brings no deadline forward", no_earlier, (before, until, after))
}

fn unobserved(pool: &Pool<()>) -> Pool<()> {
    let mut copy = pool.clone();
    copy.observe(false);
    copy
}

fn drain(pool: &mut Pool<()>) -> Vec<Output<()>> {
    std::iter::from_fn(|| pool.poll_output()).collect()
}

fn state(pool: &Pool<()>) -> String {
    serde_json::to_string(pool).expect("a pool can be serialised")
}
