//! The turns that others get between a command and its reply.
//!
//! While others run, a server nearby may answer: on a CPU of its own while the client's other tasks run, or on the client's,
//! once its thread is let run. To read the reply then costs no more than that. To wait for it costs a turn of the reactor as
//! well, some seven times as much; and where nobody else runs, the CPU falls asleep, and to wake it takes longer, and costs it
//! more work, than to look for the reply of such a server again and again.
//!
//! Whether the reply is there by then depends on where the server is, what it is asked, and who else there is. So every
//! connection takes note of what turns were worth of late, and leaves out those that were in vain, but for one now and then.
//!
//! While several commands are under way, the reactor finds the replies of all of them at once, and the server has work while it
//! does. So only who is alone stays awake.
//!
//! The tasks that have a turn are those that could run already. Those that wait for a socket or a timer are found by the
//! reactor, which an executor that has work turns only now and then.

use std::io;
use std::thread;
use std::time::Duration;

use cmap_core::time::Instant;

use crate::yield_now::yield_now;

/// So long the task stays awake: no longer than it may take until it runs again, once its CPU sleeps.
const AWAKE: Duration = Duration::from_micros(50);

/// Other tasks that want more than this have work to do: they keep the CPU awake, and what is looked for costs them time.
const IDLE: Duration = Duration::from_micros(5);

/// So often threads have their turn in that time at most, however slowly the clock goes.
const TURNS: u32 = 100;

/// After so many replies in a row that were not there, there is a pause.
const GIVES_UP: u8 = 8;

/// For so many replies.
const PAUSE: u32 = 64;

/// Other threads that want more than this have work of their own to do. Beside them, whoever waits for a socket is let run again
/// sooner than who offered a turn.
const PATIENCE: Duration = Duration::from_micros(500);

/// What a turn saves, about. One that took too long is followed by a pause of so many replies that what it took comes to no
/// more than this for each.
const GAIN: Duration = Duration::from_micros(2);

/// No pause is longer, though the machine stood still for an hour.
const LONGEST_PAUSE: u32 = 100_000;

/// The turns before a connection's replies.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// One of the executor's other tasks.
    of_tasks: Worth,
    /// Those of threads that want the same CPU; and of tasks and threads again, for as long as the task stays awake.
    of_threads: Worth,
}

/// What turns were worth of late.
#[derive(Debug, Default)]
struct Worth {
    /// After how many in a row the reply was not there.
    in_vain: u8,
    /// For how many replies to come there are none.
    pause: u32,
}

impl Turns {
    /// Lets others run who are due before the next reply, and calls `look` after each turn, until it finds the reply; returns
    /// whether it has. `now` is the time, and `is_alone` whether no other command is under way.
    ///
    /// # Errors
    /// Those of `look`.
    pub(crate) async fn pass(
        &mut self,
        now: impl Fn() -> Instant,
        is_alone: impl Fn() -> bool,
        mut look: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let (tasks, threads) = (self.of_tasks.is_due(), self.of_threads.is_due());
        if !tasks && !threads {
            return Ok(false);
        }
        // For the sake of threads, too: who finds every reply never waits, and other tasks would not get any other turn.
        yield_now().await;
        if self.of_tasks.observe(look()?) {
            return Ok(true);
        }
        Ok(threads && self.of_threads.stay_awake(now, is_alone, look).await?)
    }
}

impl Worth {
    /// Whether there is a turn before the next reply.
    fn is_due(&mut self) -> bool {
        let is_due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_due
    }

    /// Lets threads and tasks run in turn, while the reply may still come in time and no task has work to do.
    async fn stay_awake(
        &mut self,
        now: impl Fn() -> Instant,
        is_alone: impl Fn() -> bool,
        mut look: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let start = now();
        let mut longest = Duration::ZERO;
        let mut turns = 0;
        let is_there = loop {
            let offered = now();
            thread::yield_now();
            let back = now();
            longest = longest.max(back.saturating_since(offered));
            turns += 1;
            if look()? {
                break true;
            }
            if !is_alone() {
                break false;
            }
            yield_now().await;
            let others_have_work = now().saturating_since(back) > IDLE;
            if others_have_work || back.saturating_since(start) > AWAKE || turns == TURNS {
                break look()?;
            }
        };
        self.observe(is_there);
        self.make_up_for(longest);
        Ok(is_there)
    }

    /// Takes note of a turn: whether the reply was there after it.
    fn observe(&mut self, is_there: bool) -> bool {
        self.in_vain = if is_there { 0 } else { self.in_vain.saturating_add(1) };
        if self.in_vain >= GIVES_UP {
            self.pause = PAUSE;
        }
        is_there
    }

    /// Sees to it that other threads, who `took` so long, are not offered too many turns.
    fn make_up_for(&mut self, took: Duration) {
        if took > PATIENCE {
            let gains = took.as_nanos() / GAIN.as_nanos();
            self.pause = u32::try_from(gains).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LONG: Duration = Duration::from_millis(3);

    /// How many of so many `replies` have a turn before them, when `is_there` says of which it was good for something.
    fn turns(replies: u32, is_there: impl Fn(u32) -> bool) -> u32 {
        turns_that_take(Duration::ZERO, replies, is_there)
    }

    fn turns_that_take(took: Duration, replies: u32, is_there: impl Fn(u32) -> bool) -> u32 {
        let mut worth = Worth::default();
        let mut count = 0;
        for reply in 0..replies {
            if worth.is_due() {
                worth.observe(is_there(reply));
                worth.make_up_for(took);
                count += 1;
            }
        }
        count
    }

    /// What became of one reply, and how often its task let others run.
    fn pass(turns: &mut Turns, look: impl FnMut() -> io::Result<bool>) -> (io::Result<bool>, u32) {
        pass_at(|| Instant::ORIGIN, turns, look)
    }

    fn pass_at(
        now: impl Fn() -> Instant,
        turns: &mut Turns,
        look: impl FnMut() -> io::Result<bool>,
    ) -> (io::Result<bool>, u32) {
        let mut passing = pin!(turns.pass(now, || true, look));
        let mut times = 0;
        loop {
            match passing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => return (outcome, times),
                Poll::Pending => times += 1,
            }
        }
    }

    /// A look that finds the reply the `which`th time, and counts in `looks`.
    fn found_at(which: u32, looks: &Cell<u32>) -> impl FnMut() -> io::Result<bool> {
        move || {
            looks.set(looks.get() + 1);
            Ok(looks.get() == which)
        }
    }

    #[test]
    fn one_turn_in_eight_that_is_good_for_something_is_enough() {
        assert_eq!(turns(1000, |reply| reply % 8 == 7), 1000);
    }

    #[test]
    fn turns_in_vain_are_left_out_but_for_one_in_65() {
        assert_eq!(turns(7 + 65 * 100, |_| false), 7 + 100);
    }

    #[test]
    fn a_server_that_became_prompt_is_noticed() {
        let count = turns(10_000, |reply| reply >= 5_000);

        assert!((5_000..5_200).contains(&count), "{count}");
    }

    #[test]
    fn turns_that_take_too_long_cost_little_even_where_replies_are_there() {
        let replies = 100_000;

        let cost = LONG * turns_that_take(LONG, replies, |_| true);

        assert!(cost <= GAIN * replies + LONG, "{cost:?}");
    }

    #[test]
    fn a_machine_that_stood_still_ends_them_for_a_while_only() {
        let hour = Duration::from_secs(3600);

        assert_eq!(turns_that_take(hour, LONGEST_PAUSE + 2, |_| true), 2);
    }

    #[test]
    fn other_tasks_run_before_every_reply_that_is_there_at_once() {
        let mut turns = Turns::default();

        for _ in 0..1000 {
            let (found, times) = pass(&mut turns, || Ok(true));

            assert!(found.unwrap());
            assert_eq!(times, 1);
        }
    }

    #[test]
    fn other_tasks_run_also_where_only_the_turns_of_threads_are_good_for_something() {
        let mut turns = Turns::default();
        turns.of_tasks.pause = u32::MAX;

        let (found, times) = pass(&mut turns, || Ok(true));

        assert!(found.unwrap());
        assert_eq!(times, 1);
    }

    #[test]
    fn other_tasks_run_before_every_look_but_the_first_after_a_turn_of_threads() {
        let looks = Cell::new(0);

        let (found, times) = pass(&mut Turns::default(), found_at(5, &looks));

        assert!(found.unwrap());
        assert_eq!((looks.get(), times), (5, 4));
    }

    #[test]
    fn the_task_falls_asleep_when_it_was_awake_for_long_enough() {
        let (looks, time) = (Cell::new(0), Cell::new(Instant::ORIGIN));
        let now = || time.replace(time.get() + Duration::from_micros(5));

        let (found, _) = pass_at(now, &mut Turns::default(), found_at(0, &looks));

        assert!(!found.unwrap());
        assert_eq!(looks.get(), 1 + 4 + 1, "one, one in 15 µs, and a last one");
    }

    #[test]
    fn the_task_falls_asleep_while_other_commands_are_under_way() {
        let (mut turns, looks) = (Turns::default(), Cell::new(0));
        let mut passing = pin!(turns.pass(|| Instant::ORIGIN, || false, found_at(0, &looks)));
        let mut cx = Context::from_waker(Waker::noop());

        assert!(passing.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(found) = passing.as_mut().poll(&mut cx) else { panic!("there is no other turn of tasks") };

        assert!(!found.unwrap());
        assert_eq!(looks.get(), 1 + 1, "one after each turn");
    }

    #[test]
    fn the_task_falls_asleep_when_others_have_work_to_do() {
        let (looks, time) = (Cell::new(0), Cell::new(Instant::ORIGIN));
        let now = || time.replace(time.get() + Duration::from_micros(6));

        let (found, _) = pass_at(now, &mut Turns::default(), found_at(0, &looks));

        assert!(!found.unwrap());
        assert_eq!(looks.get(), 1 + 1 + 1, "one after each turn");
    }

    #[test]
    fn the_task_falls_asleep_also_while_the_clock_stands_still() {
        let looks = Cell::new(0);

        let (found, _) = pass(&mut Turns::default(), found_at(0, &looks));

        assert!(!found.unwrap());
        assert_eq!(looks.get(), 1 + TURNS + 1);
    }

    #[test]
    fn threads_that_took_too_long_have_no_turn_before_the_replies_to_come() {
        let time = Cell::new(Instant::ORIGIN);
        let mut turns = Turns::default();

        let (found, _) = pass_at(|| time.replace(time.get() + LONG), &mut turns, found_at(2, &Cell::default()));
        assert!(found.unwrap());

        for _ in 0..100 {
            let looks = Cell::new(0);
            let (found, _) = pass(&mut turns, found_at(2, &looks));
            assert!(!found.unwrap());
            assert!(looks.get() <= 1, "{looks:?}");
        }
    }

    #[test]
    fn a_server_far_away_is_waited_for() {
        let mut turns = Turns::default();
        let mut looked = 0;

        for _ in 0..1000 {
            let looks = Cell::new(0);
            let (found, _) = pass(&mut turns, found_at(0, &looks));
            assert!(!found.unwrap());
            looked += u32::from(looks.get() > 0);
        }

        assert!(looked < 30, "{looked}");
    }

    #[test]
    fn a_look_that_fails_ends_it() {
        let (outcome, _) = pass(&mut Turns::default(), || Err(io::ErrorKind::UnexpectedEof.into()));

        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
