//! Each mistake of a caller is answered by its number, and has changed nothing.

use core::ffi::c_char;
use core::{mem, ptr};

use cmap::*;

use crate::pool::{AbiPool, blank, size};

/// A pool with a connection in use.
fn in_use(now: u64) -> (AbiPool, CheckOut, Connection) {
    let pool = AbiPool::new("", now).unwrap();
    pool.ready(now).unwrap();
    let (check_out, _) = pool.check_out(now, None, None);
    let connection = pool.drain().into_iter().find(|output| output.kind == CMAP_CONNECT).unwrap().connection;
    pool.established(now, connection, 7).unwrap();
    let delivered = pool.drain().into_iter().find(|output| output.kind == CMAP_DELIVER).unwrap();
    assert_eq!((delivered.check_out, delivered.connection, delivered.socket), (check_out, connection, 7));
    (pool, check_out, connection)
}

/// Makes the call, and asserts that it changes nothing.
fn refused(pool: &AbiPool, call: impl FnOnce(*mut Pool) -> i32) -> i32 {
    let before = pool.snapshot();
    let code = call(pool.0);
    assert_eq!(pool.snapshot(), before);
    code
}

#[test]
fn null_is_answered_by_each_function_that_takes_a_pointer() {
    let (pool, check_out, connection) = in_use(0);
    let (check_out, connection) = (&raw const check_out, &raw const connection);
    let (mut output, mut number) = (blank(), 0);
    let (output, number) = (&raw mut output, &raw mut number);
    let one = c"x".as_ptr();
    type Call = fn(*mut Pool, *const CheckOut, *const Connection, *mut Output, *mut u32, *const c_char) -> i32;
    // SAFETY: of all of them, the pointers are NULL, or to what lives as long as this test.
    let calls: [Call; 12] = [
        |pool, _, _, output, _, _| unsafe { cmap_pool_check_out(pool, 0, 0, ptr::null(), ptr::null_mut(), output) },
        |pool, _, connection, output, _, _| unsafe {
            cmap_pool_check_in(pool, 0, ptr::null(), connection, 7, 1, output)
        },
        |pool, check_out, _, output, _, _| unsafe { cmap_pool_check_in(pool, 0, check_out, ptr::null(), 7, 1, output) },
        |pool, check_out, connection, _, _, _| unsafe {
            cmap_pool_check_in(pool, 0, check_out, connection, 7, 1, ptr::null_mut())
        },
        |pool, _, _, _, number, _| unsafe { cmap_pool_cancel_check_out(pool, 0, ptr::null(), number) },
        |pool, check_out, _, _, _, _| unsafe { cmap_pool_cancel_check_out(pool, 0, check_out, ptr::null_mut()) },
        |pool, _, _, _, _, _| unsafe { cmap_pool_established(pool, 0, ptr::null(), 7) },
        |pool, _, connection, _, _, _| unsafe { cmap_pool_hello(pool, 0, connection, ptr::null()) },
        |pool, _, _, _, _, _| unsafe { cmap_pool_clear(pool, 0, ptr::null(), 0, ptr::null(), 1) },
        |pool, _, _, _, _, _| unsafe { cmap_pool_poll_output(pool, ptr::null_mut()) },
        |pool, _, _, _, number, _| unsafe { cmap_pool_poll_timeout(pool, ptr::null_mut(), number) },
        |pool, _, _, _, _, text| unsafe { cmap_pool_recording(pool, 0, text, 1, ptr::null_mut(), ptr::null_mut()) },
    ];
    for call in calls {
        assert_eq!(refused(&pool, |pool| call(pool, check_out, connection, output, number, one)), CMAP_ERROR_NULL);
        assert!(pool.problem().ends_with(" is NULL"), "{}", pool.problem());
        // Without a pool nothing else is looked at.
        assert_eq!(call(ptr::null_mut(), check_out, connection, output, number, one), CMAP_ERROR_NULL);
    }
    // SAFETY: NULL is allowed.
    unsafe {
        cmap_pool_free(ptr::null_mut());
        assert_eq!(cmap_check_out_index(ptr::null()), u32::MAX);
    }
}

#[test]
fn a_pool_without_a_place_for_it_is_not_made() {
    let mut problem = [c_char::MAX; 8];
    let address = "db.example";
    let made = |problem: *mut c_char, size| {
        // SAFETY: the address is a text, and there are so many bytes for the problem.
        unsafe {
            cmap_pool_new(address.as_ptr().cast(), address.len(), ptr::null(), 0, 0, ptr::null_mut(), problem, size)
        }
    };

    assert_eq!(made(problem.as_mut_ptr(), 6), CMAP_ERROR_NULL);

    let text = problem.map(|byte| byte as u8);
    assert_eq!(&text, b"pool \0\x7f\x7f", "cut, ended by a zero, and nothing beyond the size");
    assert_eq!(made(ptr::null_mut(), 6), CMAP_ERROR_NULL);
    assert_eq!(made(problem.as_mut_ptr(), 0), CMAP_ERROR_NULL);
}

#[test]
fn an_address_and_options_that_cannot_be_used_are_told_with_their_texts() {
    let (code, text) = AbiPool::at("db:0", "", 0).err().unwrap();
    assert!(code == CMAP_ERROR_ADDRESS && text.contains("db:0"), "{code} {text}");

    for (options, word) in
        [("{\"maxPoolsize\": 1}", "maxPoolsize"), ("{\"maxPoolSize\": 1, \"minPoolSize\": 2}", "minPoolSize is 2")]
    {
        let (code, text) = AbiPool::new(options, 0).err().unwrap();
        assert!(code == CMAP_ERROR_OPTIONS && text.contains(word), "{code} {text}");
    }

    let pool = AbiPool::new("", 0).unwrap();
    assert_eq!(pool.resize(0, "{\"minPoolSize\": 101}"), Err(CMAP_ERROR_OPTIONS));
    assert!(pool.problem().contains("minPoolSize is 101"), "{}", pool.problem());
    assert_eq!(pool.resize(0, "{\"maxIdleTimeMS\": 1}"), Err(CMAP_ERROR_OPTIONS), "it cannot be changed");
}

#[test]
fn a_connection_of_another_pool_is_refused() {
    let (pool, check_out, connection) = in_use(0);
    let (other, other_check_out, other_connection) = in_use(1);

    assert_eq!(pool.check_in(0, check_out, other_connection, 7, 1), Err(CMAP_ERROR_FOREIGN_CONNECTION));
    assert_eq!(pool.established(0, other_connection, 7), Err(CMAP_ERROR_FOREIGN_CONNECTION));
    assert_eq!(pool.peer_closed(0, other_connection), Err(CMAP_ERROR_FOREIGN_CONNECTION));
    assert_eq!(pool.check_in(0, other_check_out, connection, 7, 1), Err(CMAP_ERROR_OTHER_USE));
    assert_eq!(pool.cancel(0, other_check_out), Ok(CMAP_FINISHED), "it knows nothing of it");
    drop(other);
}

#[test]
fn a_connection_is_checked_in_once() {
    let (pool, check_out, connection) = in_use(0);
    pool.check_in(0, check_out, connection, 7, CMAP_CONDITION_USABLE).unwrap();

    assert_eq!(pool.check_in(0, check_out, connection, 7, 1), Err(CMAP_ERROR_NOT_IN_USE));
    assert!(pool.problem().contains("not in use"), "{}", pool.problem());

    let (_, delivery) = pool.check_out(0, None, None);
    assert_eq!(delivery.kind, CMAP_NOTHING, "an output was left");
    assert_eq!(pool.check_in(0, check_out, connection, 7, 1), Err(CMAP_ERROR_OTHER_USE));
}

#[test]
fn each_report_of_what_is_not_under_way_has_its_own_number() {
    let (pool, _, connection) = in_use(0);

    let failure = (CMAP_PHASE_HELLO, CMAP_FAULT_NETWORK, 0, CMAP_REACTION_BY_RULES);
    assert_eq!(pool.established(0, connection, 7), Err(CMAP_ERROR_NOT_PENDING));
    assert_eq!(pool.establish_failed(0, connection, failure, "no"), Err(CMAP_ERROR_NOT_PENDING));
    assert_eq!(pool.checked(0, connection, true), Err(CMAP_ERROR_NOT_CHECKING));
    assert_eq!(pool.refreshed(0, connection, 7), Err(CMAP_ERROR_NOT_REFRESHING));
    assert_eq!(pool.clear(0, Some([1; 12]), false, "why"), Err(CMAP_ERROR_CLEAR_WITH_SERVICE));

    let balanced = AbiPool::new("{\"loadBalanced\": true}", 0).unwrap();
    balanced.ready(0).unwrap();
    balanced.check_out(0, None, None);
    let pending = balanced.drain().into_iter().find(|output| output.kind == CMAP_CONNECT).unwrap().connection;
    assert_eq!(balanced.clear(0, None, false, "why"), Err(CMAP_ERROR_CLEAR_WITHOUT_SERVICE));
    assert_eq!(balanced.established(0, pending, 7), Err(CMAP_ERROR_SERVICE_UNKNOWN));
    balanced.hello(0, pending, [1; 12]).unwrap();
    assert_eq!(balanced.hello(0, pending, [1; 12]), Err(CMAP_ERROR_UNEXPECTED_SERVICE));
}

#[test]
fn bytes_that_are_no_handle_are_refused() {
    let (pool, check_out, connection) = in_use(0);
    let swapped = (CheckOut { opaque: connection.opaque }, Connection { opaque: check_out.opaque });

    assert_eq!(pool.check_in(0, swapped.0, connection, 7, 1), Err(CMAP_ERROR_HANDLE));
    assert_eq!(pool.check_in(0, check_out, swapped.1, 7, 1), Err(CMAP_ERROR_HANDLE));
    assert_eq!(pool.established(0, Connection::default(), 7), Err(CMAP_ERROR_HANDLE));
    assert_eq!(pool.cancel(0, CheckOut { opaque: [u64::MAX; 3] }), Err(CMAP_ERROR_HANDLE));
}

#[test]
fn a_struct_that_is_too_short_is_not_touched_and_a_longer_one_only_as_far_as_is_known() {
    let (pool, check_out, connection) = in_use(0);
    let mut short = Output { size: size() - 8, ..blank() };
    let poll = |pool, output: *mut Output| {
        // SAFETY: the pool is not freed yet, and there are at least as many bytes as the size says.
        unsafe { cmap_pool_poll_output(pool, output) }
    };

    assert_eq!(refused(&pool, |pool| poll(pool, &raw mut short)), CMAP_ERROR_SIZE);
    assert_eq!((short.kind, short.text_length), (u32::MAX, usize::MAX));
    // SAFETY: as above; a call that is refused has not been made, so that the connection is in use still.
    let checked_in = refused(&pool, |pool| unsafe {
        cmap_pool_check_in(pool, 0, &raw const check_out, &raw const connection, 7, 1, &raw mut short)
    });
    assert_eq!(checked_in, CMAP_ERROR_SIZE);

    #[repr(C)]
    struct Newer {
        known: Output,
        more: u64,
    }
    let known = Output { size: u32::try_from(mem::size_of::<Newer>()).unwrap(), ..blank() };
    let mut newer = Newer { known, more: 5 };
    assert_eq!(poll(pool.0, (&raw mut newer).cast()), CMAP_OK);
    assert_eq!((newer.known.kind, newer.known.size, newer.more), (CMAP_NOTHING, known.size, 5));
}

#[test]
fn a_text_that_is_not_utf_8_is_refused() {
    let pool = AbiPool::new("", 0).unwrap();
    let bytes = b"r\xe9\xe9l";
    // SAFETY: the pool is not freed yet, and there are so many bytes.
    let code = refused(&pool, |pool| unsafe { cmap_pool_clear(pool, 0, ptr::null(), 0, bytes.as_ptr().cast(), 4) });

    assert_eq!(code, CMAP_ERROR_TEXT);
    assert!(pool.problem().starts_with("cause is not UTF-8"), "{}", pool.problem());
    // SAFETY: as above; a text cannot be that long, which is seen before it is read.
    let code = unsafe { cmap_pool_clear(pool.0, 0, ptr::null(), 0, bytes.as_ptr().cast(), usize::MAX) };
    assert_eq!(code, CMAP_ERROR_RANGE);
}

#[test]
fn a_number_that_an_argument_cannot_have_is_refused() {
    let (pool, check_out, connection) = in_use(0);

    for unknown in [0, 99] {
        assert_eq!(pool.check_in(0, check_out, connection, 7, unknown), Err(CMAP_ERROR_RANGE));
        assert_eq!(pool.set_purpose(check_out, connection, unknown), Err(CMAP_ERROR_RANGE));
        for failure in [(unknown, 1, 0, 1), (1, unknown, 0, 1), (1, 1, 0, unknown)] {
            assert_eq!(pool.establish_failed(0, connection, failure, ""), Err(CMAP_ERROR_RANGE));
        }
        for failure in [(unknown, 0, 1), (1, 0, unknown)] {
            assert_eq!(pool.refresh_failed(0, connection, failure, ""), Err(CMAP_ERROR_RANGE));
        }
    }
}

#[test]
fn a_recording_that_memory_cannot_hold_is_refused_and_the_one_before_goes_on() {
    let pool = AbiPool::new("", 0).unwrap();
    pool.start_recording();

    for bytes in [(1 << 30) + 1, u64::MAX] {
        // SAFETY: the pool is not freed yet.
        assert_eq!(unsafe { cmap_pool_start_recording(pool.0, bytes) }, CMAP_ERROR_RANGE);
        assert_eq!(pool.problem(), format!("bytes is {bytes}, which it cannot be"));
    }

    assert!(pool.recording("why").is_ok());
}

#[test]
fn nothing_is_recorded_unless_it_is_asked_for() {
    let pool = AbiPool::new("", 0).unwrap();
    assert_eq!(pool.recording("why"), Err(CMAP_ERROR_NOT_RECORDING));

    pool.start_recording();
    assert!(pool.recording("why").is_ok());

    pool.stop_recording();
    assert_eq!(pool.recording("why"), Err(CMAP_ERROR_NOT_RECORDING));
}
