//! A pool's state is data: it can be kept and restored, and one that contradicts itself is refused.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cause, CheckOutRequest, Clear, Condition, Output, Pool, ServiceId};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;

fn pool_with_a_waiter() -> Pool<()> {
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), NOW).unwrap();
    pool.ready(NOW);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    pool
}

#[test]
fn a_restored_pool_goes_on_as_the_original_would() {
    let mut original = pool_with_a_waiter();
    let text = serde_json::to_string(&original).unwrap();
    let mut restored: Pool<()> = serde_json::from_str(&text).unwrap();

    loop {
        let output = original.poll_output();
        assert_eq!(restored.poll_output(), output);
        if output.is_none() {
            break;
        }
    }
    assert_eq!(restored.stats(), original.stats());
}

#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let sound = serde_json::to_value(pool_with_a_waiter()).unwrap();
    for (pointer, lie) in [
        ("/connections/pending", serde_json::json!(7)),
        ("/connections/available/len", serde_json::json!(1)),
        ("/connections/slots/0/stage/Pending/origin", serde_json::json!(99)),
        ("/wait_queue/next_origin", serde_json::json!(99)),
        ("/wait_queue/waiting/front", serde_json::json!(99)),
        ("/wait_queue/entries/0/place", serde_json::json!(3)),
        ("/state", serde_json::json!("Paused")),
        ("/limits/max_pool_size", serde_json::json!(5)),
    ] {
        let mut state = sound.clone();
        *state.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is gone: {sound:#}")) = lie;

        let refused = serde_json::from_value::<Pool<()>>(state);

        assert!(refused.is_err(), "{pointer}");
    }
}

/// A pool that has a bit of everything: services, a waiter with a deadline, connections in every state.
fn pool_with_everything(load_balanced: bool) -> Pool<()> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(3);
    options.max_connecting = Some(1);
    options.wait_queue_timeout = Some(Duration::from_secs(5));
    options.max_idle_time = Some(Duration::from_secs(60));
    options.load_balanced = load_balanced;
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.ready(NOW);
    for _ in 0..2 {
        let _ = pool.check_out(NOW, CheckOutRequest::default());
        drive(&mut pool, NOW, 1);
    }
    drive(&mut pool, NOW, 0);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let _ = pool.check_out(NOW, CheckOutRequest::until(Instant::from_millis(100)));
    pool
}

/// Carries out the pool's actions, establishing connections and checking in the first `check_ins` of those delivered.
fn drive(pool: &mut Pool<()>, now: Instant, mut check_ins: usize) {
    for _ in 0..100 {
        let Some(output) = pool.poll_output() else { break };
        match output {
            Output::Action(Action::Connect { connection }) => {
                if pool.options().load_balanced {
                    let _ = pool.handle_hello(now, connection, ServiceId([1; 12]));
                }
                let _ = pool.handle_established(now, connection, ());
            }
            Output::Action(Action::Deliver { check_out, connection, .. }) if check_ins > 0 => {
                check_ins -= 1;
                let _ = pool.check_in(now, check_out, connection, (), Condition::Usable);
            }
            Output::Action(Action::Check { connection }) => drop(pool.handle_checked(now, connection, true)),
            Output::Action(_) | Output::Event(_) => {}
        }
    }
}

/// Every place of a number in `value`, as a JSON pointer.
fn numbers(value: &serde_json::Value, pointer: String, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| numbers(value, format!("{pointer}/{key}"), found));
        }
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| numbers(value, format!("{pointer}/{index}"), found));
        }
        serde_json::Value::Number(_) => found.push(pointer),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => {}
    }
}

#[test]
fn no_lie_about_a_number_makes_a_restored_pool_panic() {
    for load_balanced in [false, true] {
        let sound = serde_json::to_value(pool_with_everything(load_balanced)).unwrap();
        let mut places = Vec::new();
        numbers(&sound, String::new(), &mut places);
        assert!(places.len() > 50);
        let lies = [0, 1, 2, 3, u64::from(u32::MAX) - 1, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        for (pointer, lie) in places.iter().flat_map(|pointer| lies.map(|lie| (pointer, lie))) {
            let mut state = sound.clone();
            *state.pointer_mut(pointer).unwrap() = lie.into();
            let Ok(mut pool) = serde_json::from_value::<Pool<()>>(state) else { continue };
            for (now, check_ins) in [(NOW, 1), (Instant::from_millis(200), 2), (Instant::from_millis(90_000), 3)] {
                pool.handle_timeout(now);
                drive(&mut pool, now, check_ins);
                let _ = pool.check_out(now, CheckOutRequest::until(now + Duration::from_secs(1)));
                drive(&mut pool, now, check_ins);
                let cause = Cause::new("gone");
                let clear = if load_balanced { Clear::service(ServiceId([1; 12]), cause) } else { Clear::pool(cause) };
                pool.clear(now, clear.interrupting()).unwrap();
                pool.ready(now);
                drive(&mut pool, now, check_ins);
                let _ = (pool.stats(), pool.stats().closed.total(), pool.poll_timeout());
            }
            pool.reset_after_fork(Instant::from_millis(90_000));
            pool.close(Instant::from_millis(90_000));
            drive(&mut pool, Instant::from_millis(90_000), 3);
        }
    }
}
