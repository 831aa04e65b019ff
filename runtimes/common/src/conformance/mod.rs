//! What every adapter has to pass: one suite, generic over the runtime (feature `conformance`).
//!
//! An adapter says in its tests how to run a future, by a [`Harness`], and instantiates the suite by
//! [`conformance!`](crate::conformance!). Each case is then a test of that name. They talk over loopback to a
//! [`TestServer`], which is core's embedded server, and misbehaves where it is told to, or to a `rogue`, which lies. Between
//! the two there may be a `proxy`, and under the client a `lab`: the same runtime, with a clock that can be stepped and
//! sockets that stutter.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test is told by its name and fails by panicking"
)]

pub mod basics;
pub mod cancellation;
pub mod clock_steps;
pub mod closing;
pub mod derivations;
#[cfg(unix)]
pub mod descriptors;
pub mod drops;
pub mod events;
pub mod faults;
pub mod handshakes;
mod lab;
pub mod limits;
pub mod load_balanced;
pub mod logins;
pub mod phases;
pub mod pools;
mod proxy;
mod recovery;
mod rogue;
pub mod runtimes;
mod server;
pub mod sockets;
pub mod unusable;

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use cmap_core::connection::EstablishError;
use cmap_core::options::ClientOptions;
use cmap_core::pool::CheckOutErrorKind;

pub use self::server::{Deed, Hosts, Manners, Setup, TestServer};
use crate::runtime::Runtime;
use crate::telling::yield_now;
use crate::{CheckOutError, Client, Connection, Event, Notice, Subscription};

/// How an adapter's tests run.
pub trait Harness: 'static {
    /// The adapter.
    type Runtime: Runtime;

    /// Whether the runtime ends when [`block_on`](Self::block_on) returns.
    const ENDS: bool;

    /// Runs `future` in a runtime of its own, or in the one there is.
    fn block_on<T>(future: impl Future<Output = T>) -> T;
}

/// Instantiates the suite for a [`Harness`](crate::conformance::Harness).
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::conformance! { @ $harness,
            basics {
                a_command_runs_on_a_checked_out_connection,
                a_returned_connection_is_used_again,
                a_refused_command_leaves_the_connection_usable,
                an_unacknowledged_command_has_no_reply,
                a_pinned_connection_is_checked_out_and_in_once,
                a_large_document_goes_and_comes_in_one_piece,
                a_connection_is_looked_at_before_it_is_used_after_idleness,
                #[cfg(unix)]
                a_unix_socket_is_an_address_like_others,
            }
            logins {
                the_three_lines_log_in_by_scram_sha_256_under_tls,
                scram_sha_1_logs_in,
                a_certificate_logs_in,
                a_wrong_password_is_said_so,
                an_unknown_user_is_said_so,
                a_server_that_calls_itself_an_arbiter_gets_no_command_x_62,
                a_certificate_for_another_host_is_said_so,
                an_authority_that_is_not_trusted_is_said_so,
            }
            derivations {
                a_hostile_server_makes_a_client_derive_one_key_at_a_time_and_leaves_none_behind,
                a_derivation_that_takes_too_long_is_said_so,
                connections_that_start_together_derive_their_keys_once_auth_17,
                closing_breaks_off_a_derivation,
                the_end_of_the_runtime_breaks_off_a_derivation,
                more_iterations_than_a_client_allows_are_refused_with_their_number,
            }
            load_balanced {
                a_load_balancer_is_not_checked,
                a_load_balancer_may_be_named_in_code,
                a_timeout_says_what_keeps_the_connections,
                an_error_clears_its_own_service_only,
                a_server_that_is_behind_no_load_balancer_is_said_so,
            }
            unusable {
                a_connection_string_that_cannot_be_used_names_the_option_and_why,
                what_is_ignored_of_a_connection_string_is_told,
                a_server_that_is_too_old_is_said_so,
                what_is_no_mongodb_is_said_so,
                a_refused_connection_fails_check_outs_in_time,
                a_host_that_cannot_be_resolved_is_named,
                a_server_that_never_accepts_is_given_up,
                a_client_waits_for_a_server_that_comes_late,
            }
            cancellation {
                a_check_out_dropped_before_the_server_is_known_is_forgotten,
                a_dropped_waiter_is_forgotten,
                a_waiter_dropped_after_its_delivery_passes_the_connection_on,
                an_establishment_survives_the_check_out_that_caused_it,
                a_command_dropped_half_way_costs_its_connection,
                check_outs_dropped_at_random_polls_lose_nothing,
                check_outs_dropped_at_random_polls_are_each_told_to_their_end,
                a_check_out_dropped_at_any_await_loses_nothing,
                a_command_dropped_at_any_await_costs_its_connection_only,
                a_client_dropped_in_the_making_at_any_await_is_forgotten,
                a_close_dropped_at_any_await_leaves_the_client_closed,
            }
            clock_steps {
                a_step_forward_fails_those_whose_time_is_up,
                a_step_forward_replaces_idle_connections,
                a_step_forward_has_the_server_checked_again,
                a_step_back_stops_limits_and_nothing_else,
            }
            drops {
                a_connection_is_dropped_unused,
                a_connection_is_dropped_after_an_error,
                a_pinned_connection_is_dropped_in_the_middle_of_a_command,
                a_client_is_dropped_while_others_wait,
                a_client_is_dropped_before_its_server_is_known,
                a_subscription_is_dropped_unread,
            }
            closing {
                closing_fails_those_who_wait,
                closing_waits_for_connections_in_use,
                closing_cuts_off_what_does_not_come_back,
                closing_gives_up_establishments,
                closing_under_load_ends_every_operation,
                the_last_client_dropped_closes_the_pool,
            }
            events {
                events_come_in_the_order_of_the_specification,
                a_handler_may_call_the_client,
                a_panic_in_a_handler_goes_no_further,
                a_subscription_says_what_it_lost,
                whoever_tells_events_leaves_those_of_others_to_a_task,
                what_a_handler_causes_is_told_though_the_runtime_ends,
                a_subscription_ends_with_its_client,
            }
            limits {
                ten_thousand_waiters_are_all_served,
                waiters_are_served_in_their_order,
                a_wait_queue_timeout_says_how_the_pool_looked,
                timeout_ms_cuts_off_a_command,
                timeout_ms_is_told_to_the_server_csot_9,
                a_limit_that_passes_too_late_cuts_off_nothing,
                timeout_ms_bounds_a_check_out,
            }
            pools {
                a_paused_pool_gives_no_connection_cmap_28,
                a_ready_pool_gives_connections,
                a_cleared_pool_waits_for_its_owner_and_says_why,
                a_clear_fails_those_who_wait,
                an_interrupting_clear_cuts_off_a_command_cmap_40,
                a_lost_connection_clears_a_pool_without_a_monitor_sdam_10,
                a_failed_handshake_is_the_check_outs_error_and_not_the_owners,
                a_closed_pool_stays_closed_cmap_21,
                a_pool_has_no_events_of_servers_and_monitors,
                a_service_is_cleared_only_behind_a_load_balancer_lb_8,
                the_last_pool_dropped_closes_it,
            }
            runtimes {
                a_connection_is_dropped_outside_of_any_runtime,
                a_connection_is_dropped_after_its_runtime_ended,
                a_client_outlives_its_runtime,
                those_who_wait_learn_that_the_runtime_has_ended,
                a_thousand_who_wait_for_handshakes_learn_that_the_runtime_has_ended,
                several_runtimes_and_threads_share_a_client,
                a_panicking_task_returns_its_connection,
            }
            sockets {
                a_socket_is_read_at_once_if_there_is_something_to_read,
                whoever_waits_for_a_socket_is_woken_when_it_can_be_read,
                whoever_waits_for_a_socket_is_woken_when_its_peer_hangs_up,
                whoever_waits_after_a_look_is_woken_by_what_comes_next,
                a_connection_is_good_for_many_commands,
                a_connection_is_good_for_many_commands_under_tls,
            }
            faults {
                a_restarted_server_costs_no_user_an_error,
                a_restart_that_the_monitor_has_seen_costs_no_user_an_error,
                a_killed_server_is_found_again,
                a_reset_connection_is_an_error_that_clears_the_pool,
                half_a_message_then_the_end_is_an_error,
                half_a_message_then_silence_is_a_timeout,
                a_hanging_server_interrupts_its_commands,
            }
            phases {
                a_black_hole_while_connecting_is_given_up,
                a_black_hole_in_the_tls_handshake_is_given_up,
                a_black_hole_in_hello_is_given_up,
                a_black_hole_at_sasl_start_is_given_up,
                a_black_hole_at_sasl_continue_is_given_up,
                a_black_hole_at_a_command_is_given_up,
                a_reset_in_the_tls_handshake_is_an_error,
                a_reset_in_hello_is_an_error,
                a_reset_at_sasl_start_is_an_error,
                a_reset_at_sasl_continue_is_an_error,
            }
            handshakes {
                a_handshake_comes_byte_by_byte,
                a_handshake_under_tls_comes_byte_by_byte,
                a_handshake_cut_at_every_byte_is_an_error_and_recovers,
                a_handshake_under_tls_cut_at_every_byte_is_an_error_and_recovers,
                a_handshake_with_a_monitor_beside_it_that_is_cut_is_an_error_and_recovers,
                the_hello_of_a_connection_says_what_a_check_would,
            }
        }
    };
    (@ $harness:ty, $($module:ident { $($(#[$condition:meta])? $case:ident,)* })*) => {
        $(mod $module {
            $(
                $(#[$condition])?
                #[test]
                fn $case() {
                    $crate::conformance::$module::$case::<$harness>();
                }
            )*
        })*
    };
}

/// The client of a harness.
pub type ClientOf<H> = Client<<H as Harness>::Runtime>;

/// Runs a case; one that hangs fails. The limit is so long that no busy machine exceeds it.
fn run<H: Harness>(case: impl Future<Output = ()>) {
    H::block_on(within::<H, _>(Duration::from_secs(600), case));
}

/// `work`, which must end within `limit`.
async fn within<H: Harness, T>(limit: Duration, work: impl Future<Output = T>) -> T {
    let runtime = H::Runtime::current().unwrap();
    let mut timer = pin!(runtime.sleep_until(runtime.now() + limit));
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        assert!(timer.as_mut().poll(cx).is_pending(), "it did not end within {limit:?}");
        Poll::Pending
    })
    .await
}

/// A client of `server`; `query` are the options of its connection string.
async fn client<H: Harness>(server: &TestServer, query: &str) -> ClientOf<H> {
    Client::connect(&server.uri(query)).await.unwrap()
}

fn options(server: &TestServer, query: &str) -> ClientOptions {
    ClientOptions::parse(&server.uri(query)).unwrap().0
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Lets other tasks run until what is awaited has come about, of which nobody tells.
async fn until(mut has_come: impl FnMut() -> bool) {
    while !has_come() {
        yield_now().await;
    }
}

/// Reads events until one has `name`.
async fn wait_for(events: &mut Subscription, name: &str) -> Event {
    loop {
        match events.next().await {
            Some(Notice::Event(event)) if event.name() == name => return event,
            Some(Notice::Event(_)) => {}
            Some(Notice::Lost(count)) => panic!("{count} events were lost before {name}"),
            None => panic!("the events ended before {name}"),
        }
    }
}

/// Waits until a check of the server has failed.
async fn wait_for_failed_check<H: Harness>(client: &ClientOf<H>) {
    let mut events = client.subscribe(1000);
    // A description is there before the events that tell of it.
    while client.description().error.is_none() {
        assert!(events.next().await.is_some(), "the client has ended");
    }
}

/// Asserts that no connection, waiter or check-out was lost.
fn assert_nothing_lost<R: Runtime>(client: &Client<R>) {
    let stats = client.stats();
    assert_eq!((stats.counts.waiting, stats.counts.in_use), (0, 0), "{stats:?}");
    assert_eq!(stats.check_outs_started, stats.checked_out + stats.check_outs_failed.total(), "{stats:?}");
    assert_eq!(stats.checked_out, stats.checked_in, "{stats:?}");
}

/// Why the connection that was asked for could not be established.
fn establish_error<R: Runtime>(outcome: Result<Connection<R>, CheckOutError>) -> EstablishError {
    match outcome {
        Err(CheckOutError::Pool(error)) => {
            let CheckOutErrorKind::Establish(cause) = &error.kind else { panic!("{error}") };
            (**cause).clone()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it got a connection"),
    }
}

/// An error and all its causes, as a user reads them.
fn told(error: &(dyn Error + 'static)) -> String {
    chain(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether an error's cause is a connection that was reset.
fn is_reset(error: &(dyn Error + 'static)) -> bool {
    let mut causes = chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::ConnectionReset)
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
