//! What every adapter has to pass: one suite, generic over the runtime (feature `conformance`).
//!
//! An adapter says in its tests how to run a future, by a [`Harness`], and instantiates the suite by
//! [`conformance!`](crate::conformance!). Each case is then a test of that name. They talk to a [`TestServer`] over
//! loopback, which is told by the commands themselves what to do to its connections.

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
pub mod closing;
pub mod events;
pub mod faults;
pub mod limits;
pub mod pools;
pub mod runtimes;
mod server;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use cmap_core::options::ClientOptions;

pub use self::server::{Manners, TestServer};
use crate::runtime::Runtime;
use crate::{Client, Event, Notice, Subscription};

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
                a_large_reply_comes_in_one_piece,
                a_connection_is_looked_at_before_it_is_used_after_idleness,
            }
            cancellation {
                a_check_out_dropped_before_the_server_is_known_is_forgotten,
                a_dropped_waiter_is_forgotten,
                a_waiter_dropped_after_its_delivery_passes_the_connection_on,
                an_establishment_survives_the_check_out_that_caused_it,
                a_command_dropped_half_way_costs_its_connection,
                check_outs_dropped_at_random_polls_lose_nothing,
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
                a_subscription_ends_with_its_client,
            }
            limits {
                ten_thousand_waiters_are_all_served,
                waiters_are_served_in_their_order,
                a_wait_queue_timeout_says_how_the_pool_looked,
                timeout_ms_cuts_off_a_command,
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
                several_runtimes_and_threads_share_a_client,
                a_panicking_task_returns_its_connection,
            }
            faults {
                a_restarted_server_costs_no_user_an_error,
                a_killed_server_is_found_again,
                a_reset_connection_is_an_error_that_clears_the_pool,
                a_server_that_never_answers_hello_is_given_up,
                a_server_that_never_accepts_is_given_up,
                half_a_message_then_the_end_is_an_error,
                half_a_message_then_silence_is_a_timeout,
                what_is_no_mongodb_is_said_so,
                a_client_waits_for_a_server_that_comes_late,
                a_hanging_server_interrupts_its_commands,
                a_handshake_cut_at_every_byte_is_an_error_and_recovers,
                a_host_that_cannot_be_resolved_is_named,
            }
        }
    };
    (@ $harness:ty, $($module:ident { $($case:ident,)* })*) => {
        $(mod $module {
            $(
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

/// Runs a case; one that hangs fails.
fn run<H: Harness>(case: impl Future<Output = ()>) {
    H::block_on(within::<H, _>(Duration::from_secs(60), case));
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

/// Lets other tasks run.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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

/// Asserts that no connection, waiter or check-out was lost.
fn assert_balanced<H: Harness>(client: &ClientOf<H>) {
    let stats = client.stats();
    assert_eq!((stats.counts.waiting, stats.counts.in_use), (0, 0), "{stats:?}");
    assert_eq!(stats.check_outs_started, stats.checked_out + stats.check_outs_failed.total(), "{stats:?}");
    assert_eq!(stats.checked_out, stats.checked_in, "{stats:?}");
}
