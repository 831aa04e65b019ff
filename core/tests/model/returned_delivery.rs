//! A delivery that a call returns at once is the one that the queue would have held at its end.
//!
//! Each call is made next to [`Pool::call`], whose delivery stands behind the outputs that it queued: on a copy of the pool that
//! is drained, on one that is not, and on one without listeners.

use cmap_core::pool::{
    Action, Answer, ApiMisuse, CheckOutId, CheckOutRequest, Condition, Delivery, Handle, Input, Output, Pool,
};
use cmap_core::time::Instant;

use super::laws::{Broken, check};

/// [`Pool::check_out`] returns its delivery if, and only if, nothing was queued before and it is served at once.
pub(crate) fn of_check_out(pool: &Pool<()>, now: Instant, request: CheckOutRequest) -> Result<(), Broken> {
    let drained = drained(pool);
    let applied = Applied::to(&drained, now, Input::CheckOut(request));
    for events in [Events::Compared, Events::Off] {
        let mut copy = events.of_copy(&drained);
        let (check_out, delivery) = copy.check_out(now, request);
        let is_own = delivery.as_ref().is_none_or(|delivery| delivery.check_out == check_out);
        check("a check-out returns its own delivery", is_own, (check_out, &delivery))?;
        let is_served = applied.last_delivery().is_some_and(|delivery| delivery.check_out == check_out);
        check("what is served at once is returned", delivery.is_some() == is_served, (&delivery, &applied.outputs))?;
        if copy.is_drained() {
            let next_check_out = copy.next_check_out_timeout().filter(|_| delivery.is_none());
            no_earlier(&drained, &copy, next_check_out)?;
        }
        applied.is_same(copy, delivery, events)?;
    }
    if !pool.is_drained() {
        let mut copy = pool.clone();
        let (_, delivery) = copy.check_out(now, request);
        applied.comes_after(pool, copy, delivery)?;
    }
    Ok(())
}

/// [`Pool::check_in`] returns the delivery to the next waiter if, and only if, nothing was queued before and nothing follows it.
/// Where other connections are available it may come through the queue.
pub(crate) fn of_check_in(
    pool: &Pool<()>,
    now: Instant,
    (user, connection): (CheckOutId, Handle),
    how: Condition,
) -> Result<(), Broken> {
    let drained = drained(pool);
    let applied = Applied::to(&drained, now, Input::CheckIn(user, connection, how));
    for events in [Events::Compared, Events::Off] {
        let mut copy = events.of_copy(&drained);
        let checked_in = copy.check_in(now, user, connection, (), how);
        let refused = checked_in.as_ref().err().map(|refused| refused.misuse);
        check("both refuse the same", refused == applied.refused, (refused, "expected", applied.refused))?;
        let delivery = checked_in.ok().and_then(|checked_in| checked_in.delivery());
        let is_served = applied.last_delivery().is_some();
        let is_right = delivery.is_some() == is_served || (delivery.is_none() && drained.counts().available > 0);
        check("what is passed on at once is returned", is_right, (&delivery, &applied.outputs))?;
        if copy.is_drained() {
            no_earlier(&drained, &copy, copy.idle_until(now))?;
        }
        applied.is_same(copy, delivery, events)?;
    }
    if !pool.is_drained() {
        let mut copy = pool.clone();
        let checked_in = copy.check_in(now, user, connection, (), how);
        applied.comes_after(pool, copy, checked_in.ok().and_then(|checked_in| checked_in.delivery()))?;
    }
    Ok(())
}

/// No timeout has become an earlier one, but for one at `new` or later.
fn no_earlier(before: &Pool<()>, after: &Pool<()>, new: Option<Instant>) -> Result<(), Broken> {
    let (before, after) = (before.poll_timeout(), after.poll_timeout());
    let is_known = |at| before.is_some_and(|before| before.at <= at) || new.is_some_and(|new| new <= at);
    let holds = after.is_none_or(|after| is_known(after.at));
    check("what leaves no outputs makes no timeout an earlier one", holds, (before, after, new))
}

/// Whether events are produced on a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Events {
    /// As by the pool itself.
    Compared,
    Off,
}

impl Events {
    fn of_copy(self, pool: &Pool<()>) -> Pool<()> {
        let mut copy = pool.clone();
        if self == Self::Off {
            copy.observe(false);
        }
        copy
    }
}

/// The outputs of [`Pool::call`] on a drained pool: everything that the call led to, in one order.
struct Applied {
    pool: Pool<()>,
    refused: Option<ApiMisuse>,
    outputs: Vec<Output<()>>,
}

impl Applied {
    fn to(drained: &Pool<()>, now: Instant, input: Input) -> Self {
        let mut pool = drained.clone();
        let answer = pool.call(now, input, Some(()));
        let mut outputs = drain(&mut pool);
        let refused = match answer {
            Answer::CheckOut(_, delivery) | Answer::CheckedIn(delivery) => {
                outputs.extend(delivery.map(Output::from));
                None
            }
            Answer::Misuse(misuse, _) => Some(misuse),
            _ => None,
        };
        Self { pool, refused, outputs }
    }

    fn last_delivery(&self) -> Option<Delivery<()>> {
        match self.outputs.last() {
            Some(&Output::Action(Action::Deliver { check_out, connection, socket })) => {
                Some(Delivery { check_out, connection, socket })
            }
            _ => None,
        }
    }

    /// The call has queued, and then returned, the outputs of `apply`. A pool without listeners differs by its events
    /// alone.
    fn is_same(&self, mut pool: Pool<()>, delivery: Option<Delivery<()>>, events: Events) -> Result<(), Broken> {
        let mut outputs = drain(&mut pool);
        outputs.extend(delivery.map(Output::from));
        let expected = self.outputs.iter().filter(|output| events == Events::Compared || !is_event(output));
        let same = expected.clone().eq(&outputs);
        check("a returned delivery is the last output", same, (&outputs, "expected", expected.collect::<Vec<_>>()))?;
        self.is_same_state(pool)
    }

    /// If outputs were queued before the call, nothing is returned and everything comes after them.
    fn comes_after(&self, before: &Pool<()>, mut pool: Pool<()>, delivery: Option<Delivery<()>>) -> Result<(), Broken> {
        check("nothing is returned past what is queued", delivery.is_none(), &delivery)?;
        let outputs = drain(&mut pool);
        let queued = drain(&mut before.clone());
        let same = queued.iter().chain(&self.outputs).eq(&outputs);
        check("all comes after what was queued", same, (&outputs, "expected", &queued, "and", &self.outputs))?;
        self.is_same_state(pool)
    }

    fn is_same_state(&self, mut pool: Pool<()>) -> Result<(), Broken> {
        // Whole states take long to compare.
        if pool.stats().check_outs_started.is_multiple_of(8) {
            let mut expected = self.pool.clone();
            expected.observe(false);
            pool.observe(false);
            let same = state(&pool) == state(&expected);
            check("a returned delivery leaves the same state", same, (&pool, "expected", &expected))?;
        }
        Ok(())
    }
}

fn is_event(output: &Output<()>) -> bool {
    matches!(output, Output::Event(_))
}

fn drained(pool: &Pool<()>) -> Pool<()> {
    let mut copy = pool.clone();
    drain(&mut copy);
    copy
}

fn drain(pool: &mut Pool<()>) -> Vec<Output<()>> {
    std::iter::from_fn(|| pool.poll_output()).collect()
}

/// In few bytes: many states are compared.
fn state(pool: &Pool<()>) -> Vec<u8> {
    postcard::to_allocvec(pool).expect("a pool can be serialised")
}
