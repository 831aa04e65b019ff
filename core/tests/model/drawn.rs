//! Cases as proptest draws them: options, and calls whose proportions go with the state of the pool.

use core::time::Duration;
use std::thread::LocalKey;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

use cmap_core::options::{Affinity, Profile, Reuse};
use cmap_core::pool::{Condition, PoolState, Reaction};

use crate::model::case::Case;
use crate::model::sut::Sut;
use crate::model::transition::{Call, KEYS, Options, Pick, Refusal, Resized, SERVICES, Step, Time};

/// Cases with or without a load balancer.
pub(crate) struct Cases<const LOAD_BALANCED: bool>;

const MOODS: [Mood; 4] = [Mood::Crowding, Mood::Even, Mood::Leaving, Mood::Waking];

thread_local! {
    // Built once: building them for every step would cost more than the step.
    static PLAIN: [BoxedStrategy<Step>; 4] = MOODS.map(|mood| step(mood, false).boxed());
    static LOAD_BALANCED: [BoxedStrategy<Step>; 4] = MOODS.map(|mood| step(mood, true).boxed());
}

impl<const IS_LOAD_BALANCED: bool> ReferenceStateMachine for Cases<IS_LOAD_BALANCED> {
    type State = Case;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Case> {
        options(IS_LOAD_BALANCED).prop_map(Case::new).boxed()
    }

    fn transitions(case: &Case) -> BoxedStrategy<Step> {
        let mood = match case.reference.state {
            PoolState::Paused => Mood::Waking,
            PoolState::Closed => Mood::Leaving,
            PoolState::Ready => MOODS[case.steps / PHASE % 3],
        };
        let strategies: &LocalKey<_> = if IS_LOAD_BALANCED { &LOAD_BALANCED } else { &PLAIN };
        strategies.with(|of_moods| of_moods[mood as usize].clone())
    }

    fn apply(mut case: Case, step: &Step) -> Case {
        case.step(step);
        case
    }
}

pub(crate) struct PoolTest<const LOAD_BALANCED: bool>;

impl<const LOAD_BALANCED: bool> StateMachineTest for PoolTest<LOAD_BALANCED> {
    type SystemUnderTest = Sut;
    type Reference = Cases<LOAD_BALANCED>;

    fn init_test(case: &Case) -> Sut {
        Sut::new(case)
    }

    fn apply(mut sut: Sut, case: &Case, step: Step) -> Sut {
        sut.step(case, &step);
        sut
    }

    fn teardown(sut: Sut, case: Case) {
        sut.finish(case);
    }
}

/// The tendency of the callers; it changes every [`PHASE`] steps, so that queues build up and dissolve again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Far more check-outs than check-ins.
    Crowding,
    Even,
    /// More check-ins than check-outs.
    Leaving,
    /// The pool is paused: it is made ready soon.
    Waking,
}

/// Steps of one mood.
const PHASE: usize = 25;

fn options(load_balanced: bool) -> impl Strategy<Value = Options> {
    let sizes = (0_u32..=5, 0_u32..=5, any::<bool>()).prop_map(|(max, min, populated)| {
        // minPoolSize > maxPoolSize > 0 is an option error (CMAP-2).
        (
            max,
            if !populated {
                0
            } else if max == 0 {
                min
            } else {
                min.min(max)
            },
        )
    });
    let nanos = |range: core::ops::RangeInclusive<u64>| prop_oneof![1 => Just(0_u64), 1 => range];
    let maintenance = prop_oneof![1 => Just(None), 3 => (1_u64..=8).prop_map(Some)];
    let check_after_idle = prop_oneof![1 => Just(u64::MAX), 3 => 0_u64..=2];
    let switches = (prop::bool::weighted(0.5), prop::bool::weighted(0.9), prop::bool::weighted(0.2));
    let waits = (nanos(1..=12), nanos(1..=4));
    let rare = (
        prop_oneof![3 => Just(0), 1 => 1_usize..=4],
        prop_oneof![2 => Just(Reuse::Lifo), 1 => Just(Reuse::Fifo)],
        prop_oneof![3 => Just(0), 1 => prop::sample::select(&[1_u64, 2, 4, 5, 8][..])],
        prop_oneof![2 => Just(0), 1 => 1_u64..=16],
        prop_oneof![2 => Just(0), 1 => 1_u32..=3],
        affinity(),
        prop_oneof![1 => Just(0), 1 => 2_u64..=3],
    );
    (sizes, 1_u32..=3, nanos(1..=8), waits, maintenance, check_after_idle, switches, rare).prop_map(
        move |(sizes, max_connecting, max_idle, waits, maintenance, check_after_idle, switches, rare)| Options {
            max_pool_size: sizes.0,
            min_pool_size: sizes.1,
            max_connecting,
            max_idle,
            wait_queue_timeout: waits.0,
            host_timeout: waits.1,
            maintenance,
            check_after_idle,
            load_balanced,
            backoff: switches.0,
            max_wait_queue_depth: rare.0,
            reuse: rare.1,
            creation_interval: rare.2,
            max_lifetime: rare.3,
            max_uses: rare.4,
            affinity: rare.5,
            refresh_requirement: rare.6,
            profile: if switches.2 && !load_balanced { Profile::Cmap1_1 } else { Profile::Current },
            observed: switches.1,
            // It changes nothing else, so it needs no chance of its own.
            recorded: max_connecting == 2,
        },
    )
}

fn step(mood: Mood, load_balanced: bool) -> impl Strategy<Value = Step> {
    (time(), call(mood, load_balanced), prop::bool::weighted(0.2), prop::bool::weighted(0.02))
        .prop_map(|(time, call, keep_outputs, restore)| Step { time, call, keep_outputs, restore })
}

fn affinity() -> impl Strategy<Value = Option<Affinity>> {
    let hold = (1_u64..=12, any::<bool>())
        .prop_map(|(time, lend)| Some(Affinity::Hold { time: Duration::from_nanos(time), lend }));
    prop_oneof![2 => Just(None), 1 => Just(Some(Affinity::Prefer)), 4 => Just(Some(Affinity::Require)), 3 => hold]
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        50 => Just(Time::Same),
        22 => (1_u64..=4).prop_map(Time::Later),
        12 => Just(Time::Deadline),
        4 => Just(Time::BeforeDeadline),
        4 => Just(Time::AfterDeadline),
        4 => (1_u64..=20).prop_map(Time::Earlier),
        // Up to an hour and a bit.
        1 => (10_u64..=1 << 42).prop_map(Time::Later),
    ]
}

fn call(mood: Mood, load_balanced: bool) -> impl Strategy<Value = Call<Pick>> {
    let [check_out, check_in, established, ready] = match mood {
        Mood::Crowding => [40, 6, 12, 1],
        Mood::Even => [20, 20, 20, 1],
        Mood::Leaving => [8, 30, 15, 1],
        Mood::Waking => [5, 8, 8, 30],
    };
    let service = if load_balanced { 95 } else { 3 };
    let service = prop::option::weighted(f64::from(service) / 100.0, 0..SERVICES);
    let condition = prop_oneof![8 => Just(Condition::Usable), 1 => Just(Condition::Errored)];
    let reaction = prop_oneof![2 => Just(Reaction::KeepPool), 1 => Just(Reaction::ClearPool)];
    let failure = prop_oneof![6 => Just(Refusal::Overload), 2 => Just(Refusal::Credential), 1 => Just(Refusal::Other)];
    let deadline = prop::option::weighted(0.25, -1_i64..=12);
    prop_oneof![
        check_out => (deadline, prop::option::weighted(0.6, 0..KEYS))
            .prop_map(|(deadline, key)| Call::CheckOut(deadline, key)),
        check_in => (user(), pick(), condition)
            .prop_map(|(user, pick, condition)| Call::CheckIn(user, pick, condition)),
        established => pick().prop_map(Call::Established),
        ready => Just(Call::Ready),
        8 => pick().prop_map(Call::Cancel),
        3 => (service, any::<bool>()).prop_map(|(service, interrupts)| Call::Clear { service, interrupts }),
        if load_balanced { 18 } else { 1 } => (pick(), 0..SERVICES).prop_map(|(pick, id)| Call::Hello(pick, id)),
        8 => (pick(), reaction, failure)
            .prop_map(|(pick, reaction, failure)| Call::EstablishFailed(pick, reaction, failure)),
        8 => (pick(), prop::bool::weighted(0.8)).prop_map(|(pick, alive)| Call::Checked(pick, alive)),
        5 => pick().prop_map(Call::Refreshed),
        2 => pick().prop_map(Call::RefreshFailed),
        3 => pick().prop_map(Call::PeerClosed),
        if mood == Mood::Leaving { 18 } else { 6 } => resized().prop_map(Call::Resize),
        2 => (0_u64..=9).prop_map(Call::ReplaceConnections),
        3 => (0..KEYS).prop_map(Call::EndAffinity),
        2 => Just(Call::Resume),
        2 => Just(Call::RenewCredential),
        3 => prop::option::weighted(0.8, 0_u32..=6).prop_map(Call::WarmUp),
        1 => (0_u64..=12).prop_map(Call::CancelWarmUp),
        10 => Just(Call::Timeout),
        1 => prop_oneof![9 => Just(Call::ResetAfterFork), 1 => Just(Call::Close)],
    ]
}

fn resized() -> impl Strategy<Value = Resized> {
    let limit = |range| prop::option::weighted(0.7, range);
    // Small sizes are those that leave a surplus.
    let sizes = (limit(0_u32..=4), prop::option::weighted(0.3, 0_u32..=3), limit(0_u32..=3));
    let depth = prop::option::weighted(0.2, 0_usize..=3);
    let interval = prop::option::weighted(0.2, prop::sample::select(&[0_u64, 1, 2, 4, 5, 8][..]));
    (sizes, depth, interval).prop_map(|(sizes, max_wait_queue_depth, creation_interval)| {
        let (max_pool_size, min_pool_size, max_connecting) = sizes;
        Resized { max_pool_size, min_pool_size, max_connecting, max_wait_queue_depth, creation_interval }
    })
}

/// The check-out that a connection is given back under: its user, with few exceptions.
fn user() -> impl Strategy<Value = Pick> {
    prop_oneof![
        95 => Just(Pick::Fitting(0)),
        4 => (0_usize..64).prop_map(Pick::Any),
        1 => prop_oneof![Just(Pick::NeverIssued), Just(Pick::Foreign)],
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        90 => (0_usize..64).prop_map(Pick::Fitting),
        8 => (0_usize..64).prop_map(Pick::Any),
        1 => Just(Pick::NeverIssued),
        1 => Just(Pick::Foreign),
    ]
}
