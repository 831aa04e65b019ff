//! A sparse recorder keeps hours of what matters: the check-outs that waited, explained as a replay explains them, and
//! how many others there were.

use std::time::Duration;

use cmap_core::options::PoolSizes;
use cmap_core::pool::{CheckOutRequest, Condition};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, Input};
use cmap_core::trace::{
    Detail, Header, History, Interval, Limit, Question, Recorded, RecorderOptions, Replay, Trace, TraceErrorKind, Wait,
    WaitEnd, explain, waits,
};
use proptest::prelude::*;

use crate::recorded_client::{Driver, held};

const MILLI: Duration = Duration::from_millis(1);

fn sparse_in(bytes: usize) -> RecorderOptions {
    let mut options = RecorderOptions::default();
    options.detail = Detail::Sparse;
    options.bytes = bytes;
    options
}

fn read(topology: &Recorded<()>) -> Trace {
    let texts = (0..4).map(|number| (number, format!("task {number}")));
    Trace::read(&topology.recording().unwrap().with_texts(texts).encode(&Header::default())).unwrap()
}

/// From when to when what bound.
type Bound = (Instant, Instant, &'static str);

/// What is compared of a wait: the call, the caller, the end, and what bound it from when to when.
fn told(wait: &Wait) -> (Option<u64>, Option<String>, String, Vec<Bound>) {
    let ended = match &wait.end {
        // It lasts until the last call here, and there until the last one that changed something.
        WaitEnd::Open => return (wait.call, wait.holder.clone(), "Open".to_owned(), Vec::new()),
        // These tasks take their connections late, or never: later than a sparse recorder remembers them.
        WaitEnd::Delivered { at, .. } => *at,
        WaitEnd::Failed { .. } | WaitEnd::Cancelled => wait.ended,
    };
    let intervals = in_time(wait).map(|it| (it.from, it.to, it.limit.name())).collect();
    (wait.call, wait.holder.clone(), format!("{ended:?} {:?}", wait.end), intervals)
}

fn in_time(wait: &Wait) -> impl Iterator<Item = &Interval> {
    wait.intervals.iter().filter(|interval| interval.limit != Limit::LateWakeUp)
}

/// Whether it has ended, after long enough.
fn is_kept(wait: &Wait) -> bool {
    wait.end != WaitEnd::Open && wait.duration() >= MILLI
}

/// A driver whose only connection is available.
fn warm(options: RecorderOptions) -> Driver {
    let mut driver = Driver::recorded_by(options);
    driver.find(0);
    let _ = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    driver.drain(usize::MAX);
    driver.establish(0);
    driver.drain(usize::MAX);
    check_in(&mut driver);
    driver
}

fn check_in(driver: &mut Driver) {
    let (check_out, connection) = driver.in_use.pop().unwrap();
    let checked_in = driver.topology.check_in(driver.now, check_out, connection, (), Condition::Usable).unwrap();
    driver.in_use.extend(checked_in.delivery().as_ref().map(held));
    driver.drain(usize::MAX);
}

fn pair(driver: &mut Driver, after: Duration) {
    driver.now = driver.now + after;
    let (_, delivery) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    driver.in_use.extend(delivery.as_ref().map(held));
    check_in(driver);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn steps_a_millisecond_apart_are_explained_as_by_a_replay(
        steps in proptest::collection::vec((any::<u8>(), 0..1009_u16), 0..300),
    ) {
        let mut driver = Driver::recorded_in(1 << 24);
        // Some calls bring a time of a little before.
        driver.pace = 2 * MILLI;
        // Fewer than are followed.
        driver.most_waiting = 8;
        driver.leaves_outputs = false;
        for (what, which) in steps {
            driver.step(what, which);
        }
        let trace = Trace::read(&driver.file()).unwrap();

        let history = History::of(&trace, 1 << 24).unwrap();

        let unknown = usize::try_from(history.unknown).unwrap();
        let sparse = Trace::read(&history.encode(&Header::default(), &trace.texts)).unwrap();
        let mut known = 0;
        for wait in waits(&sparse).unwrap() {
            let question = wait.call.map(Question::Call);
            prop_assert!(question.is_some(), "{wait:?}");
            let replayed = explain(&trace, question.unwrap()).unwrap().remove(0);
            prop_assert_eq!(told(&wait), told(&replayed));
            known += usize::from(is_kept(&wait));
            // A replay leaves out what happens at the very time of the end, by later calls.
            prop_assert!(wait.occurrences.starts_with(&replayed.occurrences), "{:?}\n{:?}", wait, replayed);
        }
        let all = waits(&trace).unwrap().iter().filter(|wait| is_kept(wait)).count();
        prop_assert!(known <= all && all <= known + unknown, "{known} of {all} with {unknown} unknown");
    }

    #[test]
    fn the_intervals_of_every_wait_add_up_to_it(
        steps in proptest::collection::vec((any::<u8>(), 0..1009_u16), 0..300),
    ) {
        let mut driver = Driver::recorded_by(sparse_in(1 << 20));
        for (what, which) in steps {
            driver.step(what, which);
        }

        let trace = read(&driver.topology);

        for wait in explain(&trace, Question::Slowest(usize::MAX)).unwrap() {
            let mut at = wait.began;
            for interval in &wait.intervals {
                prop_assert!(interval.from == at && interval.to > at, "{wait:?}");
                at = interval.to;
            }
            prop_assert_eq!(at, wait.ended.max(wait.began));
        }
    }
}

#[test]
fn a_wait_for_a_leaked_connection_names_who_has_it() {
    let mut driver = warm(sparse_in(1 << 20));
    for task in 0..3 {
        let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
        driver.topology.note_holder(check_out, task);
        driver.drain(usize::MAX);
        while !driver.pending.is_empty() {
            driver.establish(0);
            driver.drain(usize::MAX);
        }
        driver.now = driver.now + 10 * MILLI;
    }
    let mut request = CheckOutRequest::default();
    request.deadline = Some(driver.now + 2000 * MILLI);
    let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, request);
    driver.topology.note_holder(check_out, 3);
    driver.now = driver.now + 2000 * MILLI;
    driver.topology.call(driver.now, Input::Timeout, None);
    driver.drain(usize::MAX);

    let failures = explain(&read(&driver.topology), Question::Failures(10)).unwrap();

    let [wait] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((wait.duration(), wait.holder.as_deref()), (2000 * MILLI, Some("task 3")));
    let [interval] = &wait.intervals[..] else { panic!("{wait:?}") };
    let Limit::MaxPoolSize { uses, in_use: 3, .. } = &interval.limit else { panic!("{interval:?}") };
    assert_eq!((uses[0].holder.as_deref(), uses[0].held_for), (Some("task 0"), 2030 * MILLI));
}

#[test]
fn of_a_crowd_the_last_one_is_explained_by_what_bound_those_before_it() {
    let mut driver = warm(sparse_in(1 << 20));
    let (_, delivery) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    driver.in_use.extend(delivery.as_ref().map(held));
    for task in 0..100 {
        let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
        driver.topology.note_holder(check_out, task % 4);
        driver.drain(usize::MAX);
    }
    while !driver.pending.is_empty() {
        driver.establish(0);
        driver.drain(usize::MAX);
    }
    for _ in 0..100 {
        driver.now = driver.now + 3 * MILLI;
        check_in(&mut driver);
    }

    let explained = explain(&read(&driver.topology), Question::Slowest(1)).unwrap();

    let [wait] = &explained[..] else { panic!("{explained:?}") };
    assert!(wait.duration() > 200 * MILLI && wait.holder.as_deref() == Some("task 3"), "{wait:?}");
    assert_eq!(wait.intervals.iter().map(Interval::duration).sum::<Duration>(), wait.duration());
    let Some(Limit::MaxPoolSize { ended, .. }) = wait.cause().map(|cause| &cause.limit) else { panic!("{wait:?}") };
    assert!(*ended > 50, "{wait:?}");
}

#[test]
fn a_mebibyte_holds_hours() {
    let mut driver = warm(sparse_in(1 << 20));
    driver.topology.start_recording(sparse_in(1 << 20));
    let began = driver.now;
    let mut most = 0;
    // Eight hours with a hundred pairs a second. Each second somebody waits for 5 ms, once in ten minutes for a second.
    for second in 0..8 * 3600_u64 {
        (0..100).for_each(|_| pair(&mut driver, 9 * MILLI));
        for _ in 0..4 {
            let (_, delivery) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
            driver.in_use.extend(delivery.as_ref().map(held));
            driver.drain(usize::MAX);
            (0..driver.pending.len()).for_each(|_| driver.establish(0));
            driver.drain(usize::MAX);
        }
        driver.now = driver.now + if second % 600 == 0 { 1000 * MILLI } else { 5 * MILLI };
        (0..4).for_each(|_| check_in(&mut driver));
        most = most.max(driver.topology.recorded_bytes());
    }

    let trace = read(&driver.topology);

    assert!(most <= 1 << 20, "{most}");
    let history = trace.history.as_ref().unwrap();
    assert_eq!(history.periods[0].from.saturating_since(began), Duration::ZERO);
    let served: u64 = history.periods.iter().map(|period| u64::from(period.served)).sum();
    assert!(served >= 8 * 3600 * 101, "{served}");
    let waits = waits(&trace).unwrap();
    let slow = waits.iter().filter(|wait| wait.duration() >= 1000 * MILLI).count();
    assert_eq!(slow, 48);
    let all_since = waits[waits.len() - 3600].began;
    assert!(driver.now.saturating_since(all_since) < 2 * 3600 * 1000 * MILLI, "{all_since:?}");
}

#[test]
fn a_pair_allocates_nothing_once_warm() {
    let mut driver = warm(sparse_in(1 << 20));
    (0..10).for_each(|_| pair(&mut driver, MILLI));

    let allocations = allocation_counter::measure(|| (0..100_000).for_each(|_| pair(&mut driver, MILLI)));

    assert_eq!(allocations.count_total, 0);
}

#[test]
fn a_short_wait_allocates_nothing_once_warm() {
    let mut driver = warm(sparse_in(1 << 20));
    driver.topology.call(driver.now, Input::Resize(PoolSizes::default().max_pool_size(1).into()), None).done().unwrap();
    let round = |driver: &mut Driver| {
        driver.now = driver.now + 10 * MILLI;
        let (_, delivery) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
        driver.in_use.extend(delivery.as_ref().map(held));
        let _ = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
        driver.now = driver.now + MILLI / 2;
        (0..2).for_each(|_| check_in(driver));
    };
    (0..100).for_each(|_| round(&mut driver));

    let allocations = allocation_counter::measure(|| (0..10_000).for_each(|_| round(&mut driver)));

    assert_eq!(allocations.count_total, 0);
}

#[test]
fn those_who_wait_when_it_begins_have_waited_for_an_unknown_reason_before() {
    let mut driver = Driver::recorded_in(0);
    let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    driver.now = driver.now + 30 * MILLI;
    driver.topology.call(driver.now, Input::Timeout, None);

    driver.topology.start_recording(sparse_in(1 << 20));
    driver.now = driver.now + 20 * MILLI;
    driver.topology.call(driver.now, Input::Timeout, None);

    let [wait] = &waits(&read(&driver.topology)).unwrap()[..] else { panic!("one waits") };
    assert!(matches!(check_out, CheckOut::Selecting(_)));
    let limits: Vec<_> = wait.intervals.iter().map(|it| (it.limit.name(), it.duration())).collect();
    assert_eq!(limits, [("before the trace", 30 * MILLI), ("server selection", 20 * MILLI)]);
}

#[test]
fn a_history_is_not_repeated() {
    let driver = warm(sparse_in(1 << 20));

    let trace = read(&driver.topology);

    assert!(Replay::new(&trace).is_none());
    assert_eq!(trace.calls(), 0);
}

#[test]
fn a_damaged_history_is_refused_wherever_it_is_damaged_or_ends() {
    let mut driver = warm(sparse_in(1 << 20));
    for step in 0..60_u8 {
        driver.step(step.wrapping_mul(37), u16::from(step) * 16);
    }
    let contents = driver.topology.recording().unwrap();
    let file = contents.encode(&Header::default());
    assert!(!waits(&Trace::read(&file).unwrap()).unwrap().is_empty());

    for at in 0..file.len() {
        let error = Trace::read(&file[..at]).expect_err("the end is missing");
        assert!(matches!(error.kind, TraceErrorKind::Truncated | TraceErrorKind::NoTrace), "{at}: {error}");
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= flip;
            assert!(Trace::read(&damaged).is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_wait_that_goes_on_lasts_until_the_file_is_written() {
    let mut driver = Driver::recorded_by(sparse_in(1 << 20));
    let _ = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    let mut header = Header::default();
    header.written_at = driver.now + 700 * MILLI;

    let trace = Trace::read(&driver.topology.recording().unwrap().encode(&header)).unwrap();

    let [wait] = &waits(&trace).unwrap()[..] else { panic!("one waits") };
    assert_eq!((wait.duration(), &wait.end), (700 * MILLI, &WaitEnd::Open));
    let limits: Vec<_> = wait.intervals.iter().map(|it| (it.limit.name(), it.duration())).collect();
    assert_eq!(limits, [("server selection", 700 * MILLI)]);
}
