//! What an application's error says about the server (SDAM-4 to SDAM-16, LB-9 to LB-11): a table in code.
//!
//! | error | server | pool | monitor |
//! |---|---|---|---|
//! | of a connection that a clear has made stale, or older than what is known | | | |
//! | establishing: labelled SystemOverloadedError | | | |
//! | establishing: any other | unknown | cleared | breaks off its check |
//! | operation: the server is shutting down | unknown | cleared | checks soon |
//! | operation: the server is no primary, or recovering | unknown | | checks soon |
//! | operation: labelled SystemOverloadedError, without a change of state | | | |
//! | operation: network timeout | | | |
//! | operation: other network error | unknown | cleared | breaks off its check |
//! | operation: another error of the server's, a broken reply | | | |
//! | load-balanced, before the service is known | | | |
//! | load-balanced, otherwise | | the service's part, where the pool would be cleared | |

use super::operation_error::{OperationError, StateChange};
use crate::connection::{EstablishError, Fault, SYSTEM_OVERLOADED_ERROR};

/// The circumstances of the connection when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the pool, or its service, was cleared since the connection was created (SDAM-4, SDAM-5), or the server
    /// has sent a newer description since (SDAM-6).
    pub is_stale: bool,
    /// Whether a load balancer stands between.
    pub load_balanced: bool,
    /// Whether its hello had named the service.
    pub service_is_known: bool,
}

/// The effects of an error, beyond the loss of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reactions {
    /// The pool, or the service's part of it, is cleared.
    pub clear: bool,
    /// The server becomes unknown.
    pub mark_unknown: bool,
    /// A check of the server that is under way is cancelled (SDAM-10).
    pub cancel_check: bool,
    /// The server is checked as soon as possible (SDAM-14).
    pub request_check: bool,
}

/// The reactions to a failed establishment.
pub fn to_establish_error(error: &EstablishError, circumstances: Circumstances) -> Reactions {
    if error.has_label(SYSTEM_OVERLOADED_ERROR) {
        // SDAM-7: the server has more requests than it can answer; a clear would only make it worse.
        return Reactions::default();
    }
    weigh(GONE, circumstances)
}

/// The reactions to an operation that failed on an established connection.
pub fn to_operation_error(error: &OperationError, circumstances: Circumstances) -> Reactions {
    let reactions = match (error.fault, error.state_change) {
        (_, Some(StateChange::ShuttingDown)) => Reactions { clear: true, ..CHANGED },
        (_, Some(StateChange::NotWritablePrimary | StateChange::Recovering)) => CHANGED,
        (_, None) if error.is_overload => Reactions::default(),
        (Fault::Network, None) => GONE,
        // SDAM-9: a slow operation says nothing about the others.
        (Fault::Timeout | Fault::Server { .. } | Fault::Other, None) => Reactions::default(),
    };
    weigh(reactions, circumstances)
}

/// The server is gone, as far as the client can tell.
const GONE: Reactions = Reactions { clear: true, mark_unknown: true, cancel_check: true, request_check: false };

/// The server answers, but its state has changed.
const CHANGED: Reactions = Reactions { clear: false, mark_unknown: true, cancel_check: false, request_check: true };

/// The reactions that remain in these circumstances.
fn weigh(reactions: Reactions, circumstances: Circumstances) -> Reactions {
    match circumstances {
        Circumstances { is_stale: true, .. } => Reactions::default(),
        Circumstances { load_balanced: true, service_is_known, .. } => {
            Reactions { clear: reactions.clear && service_is_known, ..Reactions::default() }
        }
        Circumstances { load_balanced: false, .. } => reactions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Phase;
    use crate::pool::Cause;

    const FRESH: Circumstances = Circumstances { is_stale: false, load_balanced: false, service_is_known: false };

    fn operation(fault: Fault) -> OperationError {
        OperationError::new(fault, Cause::new("gone"))
    }

    fn change(state_change: StateChange) -> OperationError {
        OperationError { state_change: Some(state_change), ..operation(Fault::Server { code: None }) }
    }

    fn establish(phase: Phase, fault: Fault) -> EstablishError {
        EstablishError::new(phase, fault, "gone")
    }

    #[test]
    fn an_overloaded_server_is_left_alone() {
        for fault in [Fault::Network, Fault::Timeout] {
            assert_eq!(to_establish_error(&establish(Phase::Hello, fault), FRESH), Reactions::default());
        }
    }

    #[test]
    fn an_unlabelled_establishment_error_speaks_against_the_server() {
        for (phase, fault) in [
            (Phase::Resolve, Fault::Network),
            (Phase::Proxy, Fault::Network),
            (Phase::Tls, Fault::Other),
            (Phase::Hello, Fault::Server { code: Some(91) }),
            (Phase::Authenticate, Fault::Network),
            (Phase::Authenticate, Fault::Timeout),
            (Phase::Authenticate, Fault::Server { code: Some(18) }),
        ] {
            assert_eq!(to_establish_error(&establish(phase, fault), FRESH), GONE, "{phase:?} {fault:?}");
        }
    }

    #[test]
    fn only_network_errors_of_operations_speak_against_the_server() {
        assert_eq!(to_operation_error(&operation(Fault::Network), FRESH), GONE);
        for fault in [Fault::Timeout, Fault::Server { code: Some(7) }, Fault::Other] {
            assert_eq!(to_operation_error(&operation(fault), FRESH), Reactions::default());
        }
    }

    #[test]
    fn a_state_change_is_looked_into_at_once_and_clears_only_before_a_shutdown_sdam_14_sdam_15() {
        let soon = Reactions { clear: false, mark_unknown: true, cancel_check: false, request_check: true };

        assert_eq!(to_operation_error(&change(StateChange::NotWritablePrimary), FRESH), soon);
        assert_eq!(to_operation_error(&change(StateChange::Recovering), FRESH), soon);
        let shutting_down = to_operation_error(&change(StateChange::ShuttingDown), FRESH);
        assert_eq!(shutting_down, Reactions { clear: true, ..soon });
    }

    #[test]
    fn an_overload_of_an_operation_says_nothing_of_the_server() {
        let overload = OperationError { is_overload: true, ..operation(Fault::Network) };

        assert_eq!(to_operation_error(&overload, FRESH), Reactions::default());
    }

    #[test]
    fn a_state_change_counts_though_its_error_is_labelled_as_overload_sdam_14_sdam_15() {
        for state_change in [StateChange::ShuttingDown, StateChange::Recovering, StateChange::NotWritablePrimary] {
            let plain = change(state_change);
            let labelled = OperationError { is_overload: true, ..plain.clone() };

            assert_eq!(to_operation_error(&labelled, FRESH), to_operation_error(&plain, FRESH), "{state_change:?}");
        }
    }

    #[test]
    fn errors_of_stale_connections_are_old_news() {
        let stale = Circumstances { is_stale: true, ..FRESH };

        assert_eq!(to_operation_error(&operation(Fault::Network), stale), Reactions::default());
        assert_eq!(to_establish_error(&establish(Phase::Tls, Fault::Other), stale), Reactions::default());
    }

    #[test]
    fn behind_a_load_balancer_only_a_known_service_is_cleared() {
        let before_hello = Circumstances { load_balanced: true, ..FRESH };
        let after_hello = Circumstances { service_is_known: true, ..before_hello };
        let clear = Reactions { clear: true, ..Reactions::default() };
        let error = establish(Phase::Authenticate, Fault::Server { code: Some(18) });

        assert_eq!(to_establish_error(&error, before_hello), Reactions::default());
        assert_eq!(to_establish_error(&error, after_hello), clear);
        assert_eq!(to_operation_error(&operation(Fault::Network), after_hello), clear);
    }
}
