//! Calls that make no sense get an answer, and the socket back, and leave the pool as before.

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, CheckedIn, Clear, Condition, Handle, Output,
    Pool, Reaction, Refused, ServiceId,
};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;
const SERVICE: ServiceId = ServiceId([7; 12]);

fn pool_at(host: &str, load_balanced: bool) -> Pool<&'static str> {
    let mut options = PoolOptions::default();
    options.load_balanced = load_balanced;
    let mut pool = Pool::new(ServerAddress::tcp(host, 27017), options, NOW).unwrap();
    pool.ready(NOW);
    pool
}

fn pool() -> Pool<&'static str> {
    pool_at("a.example", false)
}

fn actions(pool: &mut Pool<&'static str>) -> Vec<Action<&'static str>> {
    let outputs = std::iter::from_fn(|| pool.poll_output());
    outputs.filter_map(|output| if let Output::Action(action) = output { Some(action) } else { None }).collect()
}

/// Starts a check-out and returns the connection that is created for it.
fn pending(pool: &mut Pool<&'static str>) -> (CheckOutId, Handle) {
    let (id, _) = pool.check_out(NOW, CheckOutRequest::default());
    match actions(pool).as_slice() {
        [Action::Connect { connection }] => (id, *connection),
        other => panic!("expected a connection to be created, got {other:?}"),
    }
}

fn in_use(pool: &mut Pool<&'static str>) -> (CheckOutId, Handle) {
    let (id, connection) = pending(pool);
    pool.handle_established(NOW, connection, "socket").unwrap();
    assert!(matches!(actions(pool).as_slice(), [Action::Deliver { .. }]));
    (id, connection)
}

/// Asserts that `call` changes nothing that can be seen.
fn assert_unchanged<R>(pool: &mut Pool<&'static str>, call: impl FnOnce(&mut Pool<&'static str>) -> R) -> R {
    let before = pool.stats();
    let result = call(pool);
    assert_eq!(pool.stats(), before);
    assert_eq!(actions(pool), []);
    assert_eq!(pool.check_invariants(), Ok(()));
    result
}

#[test]
fn a_connection_of_another_pool_is_refused_with_its_socket_cmap_35() {
    let (mut own, mut other) = (pool(), pool_at("b.example", false));
    let (user, foreign) = in_use(&mut other);
    in_use(&mut own);

    let refused = assert_unchanged(&mut own, |pool| pool.check_in(NOW, user, foreign, "foreign", Condition::Usable));

    assert_eq!(refused, Err(Refused { misuse: ApiMisuse::ForeignConnection, socket: "foreign" }));
}

#[test]
fn a_second_check_in_is_refused_with_its_socket() {
    let mut pool = pool();
    let (user, connection) = in_use(&mut pool);
    assert_eq!(pool.check_in(NOW, user, connection, "socket", Condition::Usable), Ok(CheckedIn::Done));
    actions(&mut pool);

    let refused = assert_unchanged(&mut pool, |pool| pool.check_in(NOW, user, connection, "again", Condition::Usable));

    assert_eq!(refused, Err(Refused { misuse: ApiMisuse::NotInUse, socket: "again" }));
}

#[test]
fn a_second_check_in_is_refused_while_another_one_uses_the_connection() {
    let mut pool = pool();
    let (former, connection) = in_use(&mut pool);
    let (waiting, _) = pool.check_out(NOW, CheckOutRequest::default());
    actions(&mut pool);
    let handed_over = pool.check_in(NOW, former, connection, "socket", Condition::Usable).unwrap().delivery();
    assert_eq!(handed_over.map(|delivery| (delivery.check_out, delivery.connection)), Some((waiting, connection)));

    for condition in [Condition::Usable, Condition::Errored] {
        let again = assert_unchanged(&mut pool, |pool| pool.check_in(NOW, former, connection, "again", condition));
        assert_eq!(again, Err(Refused { misuse: ApiMisuse::OtherUse, socket: "again" }));
    }

    assert_eq!(pool.use_of(connection).map(|it| it.check_out), Some(waiting));
    assert!(pool.check_in(NOW, waiting, connection, "socket", Condition::Usable).is_ok());
}

#[test]
fn a_check_in_under_a_check_out_of_another_pool_is_refused() {
    let (mut own, mut other) = (pool(), pool_at("b.example", false));
    let (foreign, _) = in_use(&mut other);
    let (_, connection) = in_use(&mut own);

    let refused = assert_unchanged(&mut own, |pool| pool.check_in(NOW, foreign, connection, "own", Condition::Usable));

    assert_eq!(refused, Err(Refused { misuse: ApiMisuse::OtherUse, socket: "own" }));
}

#[test]
fn a_connection_that_is_being_established_cannot_be_checked_in() {
    let mut pool = pool();
    let (waiting, connection) = pending(&mut pool);

    let refused =
        assert_unchanged(&mut pool, |pool| pool.check_in(NOW, waiting, connection, "socket", Condition::Usable));

    assert_eq!(refused.unwrap_err().misuse, ApiMisuse::NotInUse);
}

#[test]
fn a_check_out_that_has_ended_cannot_be_cancelled() {
    let mut pool = pool();
    let (id, connection) = in_use(&mut pool);

    let delivered = assert_unchanged(&mut pool, |pool| pool.cancel_check_out(NOW, id));
    assert_eq!(pool.check_in(NOW, id, connection, "socket", Condition::Usable), Ok(CheckedIn::Done));
    actions(&mut pool);
    let finished = assert_unchanged(&mut pool, |pool| pool.cancel_check_out(NOW, id));

    assert_eq!((delivered, finished), (Cancellation::Delivered, Cancellation::Finished));
}

#[test]
fn an_id_that_is_used_again_is_another_check_out() {
    let mut pool = pool();
    let (first, connection) = in_use(&mut pool);
    assert_eq!(pool.check_in(NOW, first, connection, "socket", Condition::Usable), Ok(CheckedIn::Done));
    actions(&mut pool);

    let (second, _) = pool.check_out(NOW, CheckOutRequest::default());
    actions(&mut pool);

    assert_eq!(assert_unchanged(&mut pool, |pool| pool.cancel_check_out(NOW, first)), Cancellation::Finished);
    assert_eq!(assert_unchanged(&mut pool, |pool| pool.cancel_check_out(NOW, second)), Cancellation::Delivered);
}

#[test]
fn an_establishment_is_reported_once() {
    let mut pool = pool();
    let (_, connection) = in_use(&mut pool);

    let established = assert_unchanged(&mut pool, |pool| pool.handle_established(NOW, connection, "second"));
    let error = EstablishError::new(Phase::Connect, Fault::Network, "refused");
    let failed =
        assert_unchanged(&mut pool, |pool| pool.handle_establish_failed(NOW, connection, error, Reaction::ClearPool));

    assert_eq!(established, Err(Refused { misuse: ApiMisuse::NotPending, socket: "second" }));
    assert_eq!(failed, Err(ApiMisuse::NotPending));
}

#[test]
fn the_end_of_an_interrupted_establishment_is_ignored_and_its_socket_closed() {
    let mut pool = pool();
    let (_, connection) = pending(&mut pool);
    pool.clear(NOW, Clear::pool(Cause::new("gone")).interrupting()).unwrap();
    actions(&mut pool);

    pool.handle_established(NOW, connection, "late").unwrap();

    assert!(matches!(actions(&mut pool).as_slice(), [Action::Close { socket: "late", .. }]));
    let error = EstablishError::new(Phase::Hello, Fault::Timeout, "late");
    let late =
        assert_unchanged(&mut pool, |pool| pool.handle_establish_failed(NOW, connection, error, Reaction::ClearPool));
    assert_eq!(late, Ok(()));
}

#[test]
fn an_answer_to_a_question_that_nobody_asked_is_refused() {
    let mut pool = pool();
    let (_, connection) = in_use(&mut pool);

    let answered = assert_unchanged(&mut pool, |pool| pool.handle_checked(NOW, connection, true));

    assert_eq!(answered, Err(ApiMisuse::NotChecking));
}

#[test]
fn the_two_kinds_of_clear_never_mix_lb_8() {
    let (mut plain, mut balanced) = (pool(), pool_at("a.example", true));
    let cause = Cause::new("gone");

    let named = assert_unchanged(&mut plain, |pool| pool.clear(NOW, Clear::service(SERVICE, cause.clone())));
    let unnamed = assert_unchanged(&mut balanced, |pool| pool.clear(NOW, Clear::pool(cause)));

    assert_eq!(named, Err(ApiMisuse::ClearWithService));
    assert_eq!(unnamed, Err(ApiMisuse::ClearWithoutService));
}

#[test]
fn a_service_is_named_once_and_only_in_load_balanced_mode_lb_7() {
    let (mut plain, mut balanced) = (pool(), pool_at("a.example", true));
    let (_, outside) = pending(&mut plain);
    let (_, connection) = pending(&mut balanced);

    let unexpected = assert_unchanged(&mut plain, |pool| pool.handle_hello(NOW, outside, SERVICE));
    let unknown = assert_unchanged(&mut balanced, |pool| pool.handle_established(NOW, connection, "socket"));
    balanced.handle_hello(NOW, connection, SERVICE).unwrap();
    let twice = assert_unchanged(&mut balanced, |pool| pool.handle_hello(NOW, connection, SERVICE));

    assert_eq!(unexpected, Err(ApiMisuse::UnexpectedService));
    assert_eq!(unknown.unwrap_err().misuse, ApiMisuse::ServiceUnknown);
    assert_eq!(twice, Err(ApiMisuse::UnexpectedService));
}

#[test]
fn results_for_a_handle_of_another_pool_are_refused() {
    let (mut own, mut other) = (pool(), pool_at("b.example", false));
    let (_, foreign) = pending(&mut other);

    let established = assert_unchanged(&mut own, |pool| pool.handle_established(NOW, foreign, "foreign"));
    let checked = assert_unchanged(&mut own, |pool| pool.handle_checked(NOW, foreign, true));
    let hung_up = assert_unchanged(&mut own, |pool| pool.handle_peer_closed(NOW, foreign));

    assert_eq!(established.unwrap_err().misuse, ApiMisuse::ForeignConnection);
    assert_eq!((checked, hung_up), (Err(ApiMisuse::ForeignConnection), Err(ApiMisuse::ForeignConnection)));
}
