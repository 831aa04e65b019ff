//! What an application's error says about the server (SDAM-4 to SDAM-10, LB-9 to LB-11): a table in code.
//!
//! | error | server | pool |
//! |---|---|---|
//! | of a connection that a clear has made stale | | |
//! | establishing: labelled SystemOverloadedError | | |
//! | establishing: any other | unknown | cleared |
//! | operation: network timeout | | |
//! | operation: other network error | unknown | cleared |
//! | operation: the server's own error, a broken reply | | |
//! | load-balanced, before the service is known | | |
//! | load-balanced, otherwise | | the service's part, where the pool would be cleared |

use crate::connection::{EstablishError, Fault, SYSTEM_OVERLOADED_ERROR};

/// What the connection was when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the pool, or its service, was cleared since the connection was created (SDAM-4, SDAM-5).
    pub is_stale: bool,
    /// Whether a load balancer stands between.
    pub load_balanced: bool,
    /// Whether its hello had named the service.
    pub service_is_known: bool,
}

/// What an error leads to, beyond the loss of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a check that is under way may have to be broken off"]
pub struct Reactions {
    /// The pool, or the service's part of it, is cleared.
    pub clear: bool,
    /// The server becomes unknown.
    pub mark_unknown: bool,
    /// A check of the server that is under way is broken off (SDAM-10).
    pub cancel_check: bool,
}

/// The reactions to a failed establishment.
pub fn to_establish_error(error: &EstablishError, circumstances: Circumstances) -> Reactions {
    if error.has_label(SYSTEM_OVERLOADED_ERROR) {
        // SDAM-7: the server answers more slowly than it is asked; a clear would only make it worse.
        return Reactions::default();
    }
    against_the_server(circumstances)
}

/// The reactions to an operation that failed on an established connection.
pub fn to_operation_error(fault: Fault, circumstances: Circumstances) -> Reactions {
    match fault {
        Fault::Network => against_the_server(circumstances),
        // SDAM-9: a slow operation says nothing about the others.
        Fault::Timeout | Fault::Server { .. } | Fault::Other => Reactions::default(),
    }
}

fn against_the_server(circumstances: Circumstances) -> Reactions {
    match circumstances {
        Circumstances { is_stale: true, .. } => Reactions::default(),
        Circumstances { load_balanced: true, service_is_known, .. } => {
            Reactions { clear: service_is_known, mark_unknown: false, cancel_check: false }
        }
        Circumstances { load_balanced: false, .. } => Reactions { clear: true, mark_unknown: true, cancel_check: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Phase;

    const FRESH: Circumstances = Circumstances { is_stale: false, load_balanced: false, service_is_known: false };
    const ALL: Reactions = Reactions { clear: true, mark_unknown: true, cancel_check: true };

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
            assert_eq!(to_establish_error(&establish(phase, fault), FRESH), ALL, "{phase:?} {fault:?}");
        }
    }

    #[test]
    fn only_network_errors_of_operations_speak_against_the_server() {
        assert_eq!(to_operation_error(Fault::Network, FRESH), ALL);
        for fault in [Fault::Timeout, Fault::Server { code: Some(10107) }, Fault::Other] {
            assert_eq!(to_operation_error(fault, FRESH), Reactions::default());
        }
    }

    #[test]
    fn errors_of_stale_connections_are_old_news() {
        let stale = Circumstances { is_stale: true, ..FRESH };

        assert_eq!(to_operation_error(Fault::Network, stale), Reactions::default());
        assert_eq!(to_establish_error(&establish(Phase::Tls, Fault::Other), stale), Reactions::default());
    }

    #[test]
    fn behind_a_load_balancer_only_a_known_service_is_cleared() {
        let before_hello = Circumstances { load_balanced: true, ..FRESH };
        let after_hello = Circumstances { service_is_known: true, ..before_hello };
        let clear = Reactions { clear: true, mark_unknown: false, cancel_check: false };
        let error = establish(Phase::Authenticate, Fault::Server { code: Some(18) });

        assert_eq!(to_establish_error(&error, before_hello), Reactions::default());
        assert_eq!(to_establish_error(&error, after_hello), clear);
        assert_eq!(to_operation_error(Fault::Network, after_hello), clear);
    }
}
