//! What of a pool's state a call can tell from another one: the rest is left out, and what grows for ever is made relative.

use cmap_core::pool::Pool;
use cmap_core::time::Instant;
use serde_json::Value;

/// Fields that no call depends on, or that are the same throughout a search.
const LEFT_OUT: [&str; 13] = [
    "id",
    "address",
    "options",
    "paused_by",
    "paused_since",
    "now",
    "random",
    "observed",
    "host_use",
    "totals",
    "durations",
    "outdated_until",
    "created_until",
];

/// The state as a text, which is the same for states that behave alike. Its driver's time is `now`: the pool may not know it yet.
pub(super) fn canonical(pool: &Pool<()>, now: Instant) -> String {
    let mut state = serde_json::to_value(pool.snapshot()).unwrap();
    let now = now.as_nanos();
    let generations = state["generations"].clone();
    let fields = state.as_object_mut().unwrap();
    LEFT_OUT.iter().for_each(|name| drop(fields.remove(*name)));
    lives(&mut state, now);
    connections(&mut state["connections"], now, &generations);
    // They grow for ever, and what they say is whether a connection is stale.
    state["generations"]["pool"] = Value::Null;
    for service in state["generations"]["services"].as_object_mut().unwrap().values_mut() {
        service["generation"] = Value::Null;
    }
    check_outs(&mut state["wait_queue"], now);
    relative(&mut state["last_maintenance"], now);
    state.to_string()
}

/// Here no number of uses ends a life, and it grows for ever.
fn lives(state: &mut Value, now: u64) {
    let is_vacant: Vec<bool> =
        state["connections"]["slots"].as_array().unwrap().iter().map(|slot| slot["stage"] == "Closed").collect();
    let Some(lives) = state["retirement"].get_mut("lives") else { return };
    for (life, is_vacant) in lives.as_array_mut().unwrap().iter_mut().zip(is_vacant) {
        life["uses"] = Value::Null;
        relative(&mut life["ends_at"], now);
        if is_vacant {
            *life = Value::Null;
        }
    }
}

fn connections(connections: &mut Value, now: u64, generations: &Value) {
    connections["last_id"] = Value::Null;
    let slots = connections["slots"].as_array_mut().unwrap();
    let is_vacant = |slot: &Value| slot["stage"] == "Closed";
    let ids = ranks(slots.iter().filter(|slot| !is_vacant(slot)).map(|slot| slot["id"].as_u64().unwrap()));
    for slot in slots {
        if is_vacant(slot) {
            (slot["id"], slot["generation"], slot["service"]) = (Value::Null, Value::Null, Value::Null);
            continue;
        }
        slot["id"] = rank(&ids, &slot["id"]);
        // Stale, or not.
        let of_service = slot["service"].as_str().map(|service| &generations["services"][service]["generation"]);
        slot["generation"] = (slot["generation"] == *of_service.unwrap_or(&generations["pool"])).into();
        let stage = &mut slot["stage"];
        if stage.get("Pending").is_some() {
            stage["Pending"]["created_at"] = Value::Null;
        }
        if stage.get("Available").is_some() {
            relative(&mut stage["Available"]["since"], now);
        }
    }
}

fn check_outs(queue: &mut Value, now: u64) {
    queue["last_sequence"] = Value::Null;
    let entries = queue["entries"].as_array_mut().unwrap();
    let is_vacant = |entry: &Value| entry["progress"] == "Finished";
    let sequences = ranks(entries.iter().filter(|it| !is_vacant(it)).map(|entry| entry["sequence"].as_u64().unwrap()));
    for entry in entries {
        entry["started_at"] = Value::Null;
        if is_vacant(entry) {
            (entry["sequence"], entry["deadline"]) = (Value::Null, Value::Null);
            continue;
        }
        entry["sequence"] = rank(&sequences, &entry["sequence"]);
        relative(&mut entry["deadline"], now);
    }
    for deadline in queue["deadlines"]["heap"].as_array_mut().unwrap() {
        relative(&mut deadline["at"], now);
        deadline["sequence"] = rank(&sequences, &deadline["sequence"]);
    }
}

/// Longest time that any option of a search tells from a longer one, in nanoseconds.
const LONGEST: i128 = 10_000_000;

fn relative(time: &mut Value, now: u64) {
    if let Some(at) = time.as_u64() {
        let from_now = (i128::from(at) - i128::from(now)).clamp(-LONGEST, LONGEST);
        *time = i64::try_from(from_now).unwrap().into();
    }
}

fn ranks(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

fn rank(ranks: &[u64], number: &Value) -> Value {
    ranks.binary_search(&number.as_u64().unwrap()).map_or(Value::Null, Value::from)
}
