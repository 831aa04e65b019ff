//! What an output tells.

use core::ptr;

use cmap::*;

use crate::pool::{AbiPool, Code, Seen, blank};

const MILLISECOND: u64 = 1_000_000;

/// A pool with an available connection, which is checked once it was idle for 5 ms.
fn available() -> (AbiPool, Connection) {
    let pool = AbiPool::new("{\"checkAfterIdleMS\": 5}", 0).unwrap();
    pool.ready(0).unwrap();
    let (check_out, _) = pool.check_out(0, None, None);
    let connection = pool.drain().into_iter().find(|output| output.kind == CMAP_CONNECT).unwrap().connection;
    pool.established(0, connection, 7).unwrap();
    pool.drain();
    pool.check_in(0, check_out, connection, 7, CMAP_CONDITION_USABLE).unwrap();
    pool.drain();
    (pool, connection)
}

/// A pool whose only connection is in use, and a check-out that waits for it for 10 ms.
fn waiting() -> (AbiPool, CheckOut) {
    let pool = AbiPool::new("{\"maxPoolSize\": 1, \"waitQueueTimeoutMS\": 10}", 0).unwrap();
    pool.ready(0).unwrap();
    pool.check_out(0, None, None);
    let connection = pool.drain().into_iter().find(|output| output.kind == CMAP_CONNECT).unwrap().connection;
    pool.established(0, connection, 7).unwrap();
    pool.drain();
    let (waiting, _) = pool.check_out(0, None, None);
    pool.drain();
    (pool, waiting)
}

fn index(check_out: CheckOut) -> u32 {
    // SAFETY: it is a local variable.
    unsafe { cmap_check_out_index(&raw const check_out) }
}

/// The check-outs that the outputs that are left fail.
fn failed(pool: &AbiPool) -> Vec<CheckOut> {
    let outputs = pool.drain().into_iter();
    outputs.filter(|output| output.kind == CMAP_FAIL).map(|output| output.check_out).collect()
}

#[test]
fn a_check_out_may_have_the_index_of_one_that_it_failed() {
    let (pool, overdue) = waiting();

    let (next, _) = pool.check_out(20 * MILLISECOND, None, None);

    assert_eq!(index(next), index(overdue));
    assert_eq!(failed(&pool), [overdue]);
}

#[test]
fn after_a_timeout_and_a_drain_a_check_out_at_that_time_fails_none_of_its_index() {
    let (pool, overdue) = waiting();

    pool.handle_timeout(20 * MILLISECOND).unwrap();
    let before = failed(&pool);
    let (next, _) = pool.check_out(20 * MILLISECOND, None, None);

    assert_eq!(before, [overdue]);
    assert_eq!(index(next), index(overdue));
    assert!(failed(&pool).is_empty());
}

#[test]
fn a_connection_to_be_checked_comes_with_its_socket() {
    let (pool, connection) = available();

    pool.check_out(10 * MILLISECOND, None, None);

    let checked = pool.drain().into_iter().find(|output| output.kind == CMAP_CHECK).unwrap();
    assert_eq!((checked.connection, checked.socket), (connection, 7));
}

#[test]
fn a_connection_that_was_closed_before_its_check_was_polled_is_not_checked() {
    type Close = fn(&AbiPool, Connection) -> Result<(), Code>;
    let closing: [Close; 2] = [
        |pool, connection| pool.peer_closed(10 * MILLISECOND, connection),
        |pool, _| pool.reset_after_fork(10 * MILLISECOND),
    ];
    for close in closing {
        let (pool, connection) = available();
        pool.check_out(10 * MILLISECOND, None, None);

        close(&pool, connection).unwrap();

        let outputs = pool.drain();
        assert!(outputs.iter().all(|output| output.kind != CMAP_CHECK), "{outputs:?}");
        let closed = outputs.iter().find(|output| output.kind == CMAP_CLOSE).unwrap();
        assert_eq!((closed.connection, closed.socket), (connection, 7));
    }
}

#[test]
fn a_check_out_may_be_written_into_the_output_that_tells_of_its_delivery() {
    let (pool, connection) = available();
    let check_out = || {
        let mut output = blank();
        let place = &raw mut output;
        // SAFETY: the pool is not freed yet, and both places are in a local variable.
        let code =
            unsafe { cmap_pool_check_out(pool.0, 0, CMAP_NEVER, ptr::null(), &raw mut (*place).check_out, place) };
        assert_eq!(code, CMAP_OK);
        Seen::of(&output)
    };

    let (delivered, waiting) = (check_out(), check_out());

    assert_eq!((delivered.kind, delivered.connection, waiting.kind), (CMAP_DELIVER, connection, CMAP_NOTHING));
    pool.check_in(0, delivered.check_out, connection, 7, CMAP_CONDITION_USABLE).unwrap();
    let next = pool.drain().into_iter().find(|output| output.kind == CMAP_DELIVER).unwrap();
    assert_eq!(next.check_out, waiting.check_out);
}
