//! Official tests that contradict the rules which they test. They are left out, with the reason.

use crate::suites::requirement::Topology;

/// A test that contradicts a rule.
struct Contradiction {
    test: &'static str,
    /// On these servers alone; `None` is on all.
    on: Option<Topology>,
    why: &'static str,
}

const CONTRADICTIONS: [Contradiction; 4] = [
    Contradiction {
        test: "Non-tailable cursor iteration timeoutMS is refreshed for getMore if timeoutMode is iteration - failure",
        on: None,
        why: "a reply after 60 ms is to exceed a limit of 100 (CSOT-19)",
    },
    Contradiction {
        test: "Tailable cursor iteration timeoutMS is refreshed for getMore - failure",
        on: None,
        why: "a reply after 60 ms is to exceed a limit of 100 (CSOT-20)",
    },
    Contradiction {
        test: "Tailable cursor awaitData iteration timeoutMS is refreshed for getMore - failure",
        on: None,
        why: "time is to be up where nothing limits it",
    },
    // The getMore has cost the connection, over which alone the cursor can be ended (LB-14).
    Contradiction { test: "timeoutMS is refreshed for close", on: Some(Topology::LoadBalanced), why: "LB-14" },
];

/// Why a test is left out on all servers, if it is.
pub fn of_test(test: &str) -> Option<String> {
    let found = CONTRADICTIONS.iter().find(|own| own.test == test && own.on.is_none())?;
    Some(format!("contradicts the rules: {}", found.why))
}

/// Whether a test is left out on these servers.
pub fn is_of(test: &str, topology: Topology) -> bool {
    CONTRADICTIONS.iter().any(|own| own.test == test && own.on == Some(topology))
}
