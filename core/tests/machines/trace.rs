//! What a recorder keeps is what happened: replayed from the file alone, the same calls lead to the same outputs and the same
//! state; and a file that is not whole, not intact or not of this version is refused.

use std::time::Duration;

use cmap_core::pool::{Action, CheckOutRequest, Output as PoolOutput};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Input, Output, Topology};
use cmap_core::trace::{
    BEHAVIOUR, Difference, Item, Limit, Note, Question, Replay, SCHEMA, Trace, TraceErrorKind, WaitEnd, explain, waits,
};
use proptest::prelude::*;

use crate::recorded_client::Driver;

/// A driver after enough steps for several segments.
fn busy(steps: usize, bytes: usize) -> Driver {
    let mut driver = Driver::recorded_in(bytes);
    (0..3).for_each(|server| driver.find(server));
    for step in 0..steps {
        let number = u32::try_from(step).unwrap().wrapping_mul(0x9e37_79b9);
        let [what, ..] = number.to_be_bytes();
        driver.step(what, u16::try_from(number % 1009).unwrap());
    }
    driver
}

fn replayed(trace: &Trace) -> Topology<()> {
    let mut replay = Replay::new(trace).unwrap();
    while replay.step().unwrap().is_some() {}
    replay.machine().clone()
}

fn text(machine: &Topology<()>) -> String {
    serde_json::to_string(machine).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Also where outputs stay queued between calls, times go back, and the oldest calls are dropped.
    #[test]
    fn the_file_alone_leads_to_the_same_state(
        steps in proptest::collection::vec((any::<u8>(), 0..1009_u16), 0..400),
        bytes in prop_oneof![Just(0_usize), Just(4096), Just(1 << 20)],
    ) {
        let mut driver = Driver::recorded_in(bytes);
        for (what, which) in steps {
            driver.step(what, which);
        }

        let trace = Trace::read(&driver.file()).unwrap();

        prop_assert_eq!(text(&replayed(&trace)), text(&driver.topology.snapshot()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Every part of a wait has its limit, also where results lie in the queue and callers give up.
    #[test]
    fn the_intervals_of_every_wait_add_up_to_it(
        steps in proptest::collection::vec((any::<u8>(), 0..1009_u16), 0..300),
        bytes in prop_oneof![Just(0_usize), Just(1 << 20)],
    ) {
        let mut driver = Driver::recorded_in(bytes);
        for (what, which) in steps {
            driver.step(what, which);
        }
        let trace = Trace::read(&driver.file()).unwrap();

        let explained = explain(&trace, Question::Slowest(usize::MAX)).unwrap();

        prop_assert_eq!(explained.len(), waits(&trace).unwrap().len());
        for wait in explained {
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
    let mut driver = Driver::recorded_in(1 << 20);
    driver.find(0);
    driver.drain(usize::MAX);
    for task in 0..3 {
        let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
        driver.topology.note_holder(check_out, task);
        driver.drain(usize::MAX);
        while !driver.pending.is_empty() {
            driver.establish(0);
            driver.drain(usize::MAX);
        }
        driver.now = driver.now + Duration::from_millis(10);
    }
    let mut request = CheckOutRequest::default();
    request.deadline = Some(driver.now + Duration::from_secs(2));
    let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, request);
    driver.topology.note_holder(check_out, 3);
    driver.now = driver.now + Duration::from_secs(2);
    driver.topology.call(driver.now, Input::Timeout, None);
    driver.drain(usize::MAX);
    let trace = Trace::read(&driver.file()).unwrap();

    let failures = explain(&trace, Question::Failures(10)).unwrap();

    let [wait] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((wait.duration(), wait.holder.as_deref()), (Duration::from_secs(2), Some("task 3")));
    assert!(matches!(&wait.end, WaitEnd::Failed { error } if error.contains("maxPoolSize")), "{wait:?}");
    let [interval] = &wait.intervals[..] else { panic!("{wait:?}") };
    let Limit::MaxPoolSize { uses, in_use: 3, .. } = &interval.limit else { panic!("{interval:?}") };
    assert_eq!(uses[0].holder.as_deref(), Some("task 0"));
    assert_eq!(uses[0].held_for, Duration::from_millis(2030));
}

#[test]
fn the_oldest_segments_go_and_memory_stays_bounded() {
    let driver = busy(40_000, 64 << 10);

    let trace = Trace::read(&driver.file()).unwrap();

    assert!(trace.segments.len() <= 4, "{}", trace.segments.len());
    assert!(trace.segments[0].first > 10_000, "{}", trace.segments[0].first);
    let snapshot = driver.topology.recorded_bytes();
    assert!(snapshot < 512 << 10, "{snapshot}");
    assert_eq!(text(&replayed(&trace)), text(&driver.topology.snapshot()));
}

#[test]
fn a_step_has_the_call_its_answer_and_the_outputs_that_followed() {
    let mut driver = Driver::recorded_in(1 << 20);
    (0..3).for_each(|server| driver.find(server));
    driver.drain(usize::MAX);
    let (check_out, _) = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    driver.topology.note_holder(check_out, 2);
    driver.drain(usize::MAX);
    let trace = Trace::read(&driver.file()).unwrap();

    let mut replay = Replay::new(&trace).unwrap();
    let mut last = None;
    while let Some(step) = replay.step().unwrap() {
        last = Some(step);
    }

    let last = last.unwrap();
    assert_eq!(*last.input, Input::CheckOut(Box::default(), CheckOutRequest::default()));
    assert_eq!(last.answer, cmap_core::topology::Answer::CheckOut(check_out, None));
    assert_eq!(last.notes, [&Note::Holder(2)]);
    assert_eq!(trace.text(2), Some("task 2"));
    let connects = last
        .outputs
        .iter()
        .filter(|output| matches!(output, Output::Pool { output: PoolOutput::Action(Action::Connect { .. }), .. }));
    assert_eq!(connects.count(), 1);
}

#[test]
fn another_answer_is_found_at_its_call() {
    let driver = busy(300, 1 << 20);
    let mut trace = Trace::read(&driver.file()).unwrap();
    let items = &mut trace.segments[0].items;
    let is_check_out = |item: &Item| matches!(item, Item::Call(call) if matches!(call.input, Input::CheckOut(..)));
    let position = items.iter().rposition(is_check_out).unwrap();
    // As if the version that recorded it had taken no connection.
    let Item::Call(call) = &mut items[position] else { unreachable!() };
    call.input = Input::Timeout;

    let mut replay = Replay::new(&trace).unwrap();
    let divergence = loop {
        match replay.step() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("nothing was found"),
            Err(divergence) => break divergence,
        }
    };

    assert_eq!(divergence.input.as_deref(), Some(&Input::Timeout));
    assert!(matches!(divergence.difference, Difference::Digest { .. }));
    let text = divergence.to_string();
    assert!(text.contains("differs from the recording after call") && text.contains("Timeout"), "{text}");
}

#[test]
fn another_end_is_found_though_no_call_follows() {
    let mut driver = Driver::recorded_in(1 << 20);
    (0..3).for_each(|server| driver.find(server));
    driver.drain(usize::MAX);
    let _ = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
    driver.drain(usize::MAX);
    let mut trace = Trace::read(&driver.file()).unwrap();
    let items = &mut trace.segments[0].items;
    // As if the version that recorded it had had no output after its last call.
    let position = items.iter().rposition(|item| matches!(item, Item::Polled(_))).unwrap();
    items.remove(position);

    let mut replay = Replay::new(&trace).unwrap();
    let divergence = loop {
        match replay.step() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("nothing was found"),
            Err(divergence) => break divergence,
        }
    };

    assert!(matches!(divergence.difference, Difference::Timeout { .. }), "{divergence}");
}

#[test]
fn an_output_more_is_found_though_no_call_follows() {
    // The last call has outputs, of which the driver takes so many. How many polls are recorded, and where.
    let after_a_check_out = |taken: usize| {
        let mut driver = Driver::recorded_in(1 << 20);
        (0..3).for_each(|server| driver.find(server));
        driver.drain(usize::MAX);
        let _ = driver.topology.check_out(driver.now, Criteria::WRITABLE, CheckOutRequest::default());
        driver.drain(taken);
        let trace = Trace::read(&driver.file()).unwrap();
        let last = trace.segments[0].items.iter().rposition(|item| matches!(item, Item::Polled(_))).unwrap();
        let Item::Polled(polls) = trace.segments[0].items[last] else { unreachable!() };
        (trace, last, polls)
    };
    let (whole, _, polls) = after_a_check_out(usize::MAX);
    replayed(&whole);
    let outputs = polls - 1;
    let (mut trace, last, polls) = after_a_check_out(usize::try_from(outputs - 1).unwrap());
    assert_eq!(polls, outputs - 1, "one is left, and the machine wants to be called at once");
    // As if the version that recorded it had wanted to be called at once for another reason, with nothing left.
    trace.segments[0].items[last] = Item::Polled(outputs);

    let mut replay = Replay::new(&trace).unwrap();
    let mut step = replay.step();
    while let Ok(Some(_)) = step {
        step = replay.step();
    }

    let divergence = step.expect_err("the replay has an output more");
    assert!(matches!(divergence.input.as_deref(), Some(Input::CheckOut(..))), "{divergence}");
}

#[test]
fn no_damaged_byte_goes_unnoticed() {
    let file = busy(40, 1 << 20).file();
    let line = file.iter().position(|&byte| byte == b'\n').unwrap() + 1;

    for at in 0..file.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= flip;
            let error = Trace::read(&damaged).expect_err("damage is refused");
            assert!(error.offset <= at.max(line), "byte {at}: {error}");
        }
    }
}

#[test]
fn a_days_load_keeps_its_memory() {
    let mut driver = Driver::recorded_in(1 << 20);
    let mut random = 1_u64;
    let mut most = 0;
    // Ten calls a second, one in ten of them something else than a check-out or a check-in.
    for _ in 0..86_400 * 10 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [what, high, low, which, ..] = random.to_be_bytes();
        let what = if what < 230 { high % 9 } else { high };
        driver.step(what, u16::from_be_bytes([low, which]));
        driver.now = driver.now + Duration::from_millis(70);
        most = most.max(driver.topology.recorded_bytes());
    }

    assert!(driver.now > Instant::ORIGIN + Duration::from_secs(24 * 3600 - 3600), "{:?}", driver.now);
    assert!(most <= (1 << 20) + (1 << 16), "{most}");
    let trace = Trace::read(&driver.file()).unwrap();
    let mut replay = Replay::new(&trace).unwrap();
    while replay.step().unwrap().is_some() {}
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let file = busy(40, 1 << 20).file();

    for length in 0..file.len() {
        let error = Trace::read(&file[..length]).expect_err("the end is missing");
        let is_expected = matches!(error.kind, TraceErrorKind::Truncated | TraceErrorKind::NoTrace);
        assert!(is_expected, "{length}: {error}");
    }
}

#[test]
fn what_follows_the_end_is_refused() {
    let mut file = busy(4, 1 << 20).file();
    file.push(0);

    assert_eq!(Trace::read(&file).expect_err("too long").kind, TraceErrorKind::Excess);
}

#[test]
fn traces_of_other_versions_and_other_files_are_refused_by_name() {
    let file = busy(4, 1 << 20).file();
    let with_line = |line: &str| {
        let rest = file.iter().position(|&byte| byte == b'\n').unwrap();
        let other = [line.as_bytes(), &file[rest..]].concat();
        Trace::read(&other).expect_err("not of this version").to_string()
    };

    for other in [SCHEMA - 1, SCHEMA + 1] {
        let error = with_line(&format!("cmap-trace {other} behaviour {BEHAVIOUR}"));
        assert!(error.contains(&format!("it has schema {other},")), "{error}");
    }
    for other in [BEHAVIOUR - 1, BEHAVIOUR + 1] {
        let error = with_line(&format!("cmap-trace {SCHEMA} behaviour {other}"));
        assert!(error.contains(&format!("recorded with behaviour {other},")), "{error}");
    }
    let others = [
        with_line(&format!("cmap-tracing {SCHEMA} behaviour {BEHAVIOUR}")),
        Trace::read(b"{\"schema\": 1}\n").expect_err("another format").to_string(),
        Trace::read(b"").expect_err("empty").to_string(),
    ];

    for error in others {
        assert!(error.contains("at byte 0, it does not begin as traces do"), "{error}");
    }
}
