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
