//! The states of a small pool: breadth first, from each state every call that makes sense there. After each call the laws of the
//! pool hold; from each state everybody is answered once the faults stop; and the number of states is printed.
//!
//! The states are those of `Pool<()>` itself. Two are the same if they differ in nothing that a call can tell: numbers are given
//! anew, times are relative, and statistics are left out (`search/canonical.rs`).
//!
//! The smallest world is searched as a whole, the others (`-- --include-ignored`) as far as a number of calls leads;
//! `CMAP_SEARCH_DEPTH=20` goes further, and `-- --nocapture` shows the numbers.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

#[path = "search/canonical.rs"]
mod canonical;
#[path = "search/world.rs"]
mod world;

use std::time::Duration;

use stateright::{Checker, CheckerBuilder, Model, Property};
use world::{Action, Node, World};

const MILLI: Duration = Duration::from_millis(1);

impl Model for World {
    type State = Node;
    type Action = Action;

    fn init_states(&self) -> Vec<Node> {
        vec![self.begin()]
    }

    fn actions(&self, state: &Node, actions: &mut Vec<Action>) {
        actions.extend(self.possible(state));
    }

    fn next_state(&self, last: &Node, action: Action) -> Option<Node> {
        // What follows a broken law shows nothing.
        last.broken.is_none().then(|| self.next(last, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the laws of the pool hold", |_, state: &Node| state.broken.is_none()),
            Property::always("everybody is answered once the faults stop", |world: &Self, state: &Node| {
                world.calms_down(state).is_ok()
            }),
        ]
    }
}

/// Searches what `depth` calls can lead to, or everything, and prints how many states that are.
fn search(name: &str, depth: Option<usize>, world: World) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let deeper = std::env::var("CMAP_SEARCH_DEPTH").ok().and_then(|depth| depth.parse().ok());
    let checker = world.clone().checker().threads(threads);
    // The first state counts as well.
    let checker =
        depth.map(|depth| deeper.unwrap_or(depth) + 1).into_iter().fold(checker, CheckerBuilder::target_max_depth);
    let checker = checker.spawn_bfs().join();
    let (states, calls) = (checker.unique_state_count(), checker.state_count());
    println!("{name}: {states} states, {calls} calls, {} deep", checker.max_depth() - 1);
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let last = path.last_state().clone();
        let calls = path.into_actions();
        panic!("{name}: {property}: {:?}, {:?}, after {calls:?}", last.broken, world.calms_down(&last));
    }
    assert!(states > 1000 || deeper.is_some(), "{states}");
}

#[test]
fn one_connection_and_two_waiters_in_every_state() {
    search("one connection, two waiters", None, World { connections: 1, waiters: 2, ..World::default() });
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn two_connections_and_two_waiters() {
    search("two connections, two waiters", Some(12), World::default());
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn three_connections_and_three_waiters() {
    let world = World { connections: 3, waiters: 3, ..World::default() };
    search("three connections, three waiters", Some(10), world);
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn establishment_one_at_a_time() {
    let world = World { connections: 3, waiters: 3, max_connecting: 1, ..World::default() };
    search("maxConnecting 1", Some(10), world);
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn a_floor_and_connections_that_grow_old() {
    let (max_idle, pass) = (4 * MILLI, 2 * MILLI);
    let world = World { min_pool_size: 1, max_idle, pass, ..World::default() };
    search("minPoolSize 1, maxIdleTimeMS", Some(8), world);
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn waiters_with_deadlines() {
    let (wait_queue_timeout, pass) = (4 * MILLI, 2 * MILLI);
    // One connection: those whose own connections are established have no such deadline.
    let world = World { connections: 1, waiters: 3, wait_queue_timeout, pass, ..World::default() };
    search("waitQueueTimeoutMS", Some(11), world);
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn limits_that_change() {
    search("maxPoolSize 1 and 2", Some(9), World { resizes: true, ..World::default() });
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn check_outs_with_deadlines_of_their_own() {
    let (patience, pass) = (4 * MILLI, 2 * MILLI);
    search("deadlines of their own", Some(7), World { patience, pass, ..World::default() });
}

#[test]
#[ignore = "full: takes a minute with its siblings, and the property test of the pool has more options"]
fn services_behind_a_load_balancer() {
    search("two services", Some(8), World { load_balanced: true, ..World::default() });
}
