//! A pool's state is data: it can be kept and restored, and one that contradicts itself is refused.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{CheckOutRequest, Input, Pool};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;

fn pool_with_a_waiter() -> Pool<()> {
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), PoolOptions::default(), NOW).unwrap();
    pool.apply(NOW, Input::Ready).unwrap();
    pool.apply(NOW, Input::CheckOut(CheckOutRequest::default())).unwrap();
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
