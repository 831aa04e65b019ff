//! The short ways past the outputs lead to where the long ones do.
//!
//! Each is tried on a copy of the pool that nobody listens to, beside the long way on another.

use cmap_core::pool::{Action, CheckOutRequest, Condition, Delivery, Handle, Output, Pool};
use cmap_core::time::Instant;

use super::laws::{Broken, check};

/// [`Pool::try_check_out`] hands over a connection if, and only if, its delivery is all that comes of a check-out; one
/// without outputs brings no deadline before [`Pool::waits_until`].
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
    same_state(&short, if delivery.is_some() { &long } else { &before })?;
    no_earlier(&before, &short, |_| false)?;
    if outputs.is_empty() {
        no_earlier(&before, &long, |at| long.waits_until().is_some_and(|until| until <= at))?;
    }
    Ok(())
}

/// [`Pool::hand_over`] delivers at once if that is all that comes of a check-in and nothing else is available, and is a
/// check-in otherwise; one without outputs brings no deadline before [`Pool::idle_until`].
pub(crate) fn of_check_in(pool: &Pool<()>, now: Instant, connection: Handle, how: Condition) -> Result<(), Broken> {
    let before = unobserved(pool);
    let (mut short, mut long) = (before.clone(), before.clone());
    let (handed_over, refused) = match short.hand_over(now, connection, (), how) {
        Ok(delivery) => (delivery, None),
        Err(refused) => (None, Some(refused)),
    };
    let expected = long.check_in(now, connection, (), how).err();
    check("both ways refuse the same", refused == expected, (refused, "expected", &expected))?;
    if handed_over.is_some() || short.is_drained() {
        let is_awaited = |at| short.idle_until(now).filter(|_| handed_over.is_none()).is_some_and(|until| until <= at);
        no_earlier(&before, &short, is_awaited)?;
    }
    let outputs = drain(&mut long);
    let delivery = match outputs.as_slice() {
        &[Output::Action(Action::Deliver { check_out, connection, socket })] if before.is_drained() => {
            Some(Delivery { check_out, connection, socket })
        }
        _ => None,
    };
    let may_be_long = handed_over.is_none() && before.counts().available > 0;
    let right = handed_over == delivery || may_be_long;
    check("the short way is taken where it can be", right, (handed_over.as_ref(), "expected", &delivery))?;
    let expected = if handed_over.is_some() { Vec::new() } else { outputs };
    let outputs = drain(&mut short);
    check("both ways have the same outputs", outputs == expected, (&outputs, "expected", &expected))?;
    same_state(&short, &long)
}

/// No deadline became an earlier one, but for those that the caller is aware of.
fn no_earlier(before: &Pool<()>, after: &Pool<()>, is_awaited: impl Fn(Instant) -> bool) -> Result<(), Broken> {
    let (before, after) = (before.poll_timeout(), after.poll_timeout());
    let held = after.is_none_or(|after| before.is_some_and(|before| before.at <= after.at) || is_awaited(after.at));
    check("what leaves no outputs brings no deadline forward", held, (before, after))
}

fn same_state(short: &Pool<()>, long: &Pool<()>) -> Result<(), Broken> {
    // Whole states take long to compare.
    if long.stats().check_outs_started.is_multiple_of(8) {
        check(
            "the short way leads to where the long one does",
            state(short) == state(long),
            (short, "expected", long),
        )?;
    }
    Ok(())
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
