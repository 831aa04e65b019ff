//! The suite by way of agents: each client of a case is built with a listener, and each server has an agent.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::rc::Rc;

use cmap_core::address::ServerAddress;
use cmap_runtime::{Builder, Listen};

use super::front::Front;
use crate::{Harness, ground};

/// A harness whose clients take their connections from agents.
pub struct BehindAgents<H>(PhantomData<H>);

/// The cases that are about what is different here, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("what_is_ignored_of_a_connection_string_is_told", WARNINGS),
    ("what_gives_up_a_protection_is_told", WARNINGS),
    ("a_reset_connection_is_an_error_that_clears_the_pool", RESET),
    ("an_error_clears_its_own_service_only", RESET),
    ("a_reset_in_the_tls_handshake_is_an_error", RESET),
    ("a_reset_in_hello_is_an_error", RESET),
    ("a_reset_at_sasl_start_is_an_error", RESET),
    ("a_reset_at_sasl_continue_is_an_error", RESET),
    ("a_client_outlives_its_runtime", HOME),
    ("those_who_wait_learn_that_the_runtime_has_ended", HOME),
];

const WARNINGS: &str = "a client with a listener is built with options that were parsed before, and the parser has returned their warnings";

const RESET: &str =
    "an agent whose server resets a connection ends its own without the end of TLS, which the error says instead";

const HOME: &str = "the agents of a case live in its runtime, and this one ends that";

thread_local! {
    /// The listener and the agents of the part of a case that runs on this thread.
    static FRONT: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) };
    /// Whether a client or a pool of the case takes its connections from agents.
    static HAS_AGENTS: Cell<bool> = const { Cell::new(false) };
}

impl<H: Harness<Runtime: Listen>> Harness for BehindAgents<H> {
    type Runtime = H::Runtime;

    const ENDS: bool = H::ENDS;

    const PREPARES: bool = true;

    fn test(case: impl Fn()) {
        H::test(case);
    }

    fn prepare<T>(builder: Builder<H::Runtime, T>, hosts: &[ServerAddress]) -> Builder<H::Runtime, T> {
        let front = FRONT.with_borrow(Clone::clone).expect("clients are made in `block_on`");
        HAS_AGENTS.set(true);
        match front.downcast::<Front<H::Runtime>>() {
            Ok(front) => front.prepare(builder, hosts),
            Err(_) => panic!("another harness runs on this thread"),
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        H::block_on(async {
            let front: Rc<dyn Any> = Rc::new(Front::<H::Runtime>::listen(ground::current().unix_time()).await);
            let before = FRONT.replace(Some(front));
            let output = future.await;
            FRONT.set(before);
            output
        })
    }
}

/// Runs the case `name`, or prints why it is left out. Prints also if the case had no agents: those that measure or disturb what a
/// runtime does bring their own, which connects by itself.
pub fn test(name: &str, case: impl FnOnce()) {
    if let Some((_, reason)) = DIFFERENT.iter().find(|(different, _)| *different == name) {
        say(&format!("{name} is skipped by way of agents: {reason}"));
        return;
    }
    HAS_AGENTS.set(false);
    case();
    if !HAS_AGENTS.get() {
        say(&format!("{name} passes without agents: it has no client of the harness's runtime"));
    }
}

/// Says it past the harness, which keeps to itself what a case that passes has printed.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
