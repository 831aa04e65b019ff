//! The suite that every adapter has to pass, on async-std's runtime.
//!
//! What `alone` has measures how tasks are served beside others, or takes what the whole process has: it runs by itself, with
//! `-- --ignored alone:: --test-threads=1`.

mod harness;

cmap_conformance::conformance!(ignored "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol" crate::harness::Global);

/// The cases of listeners and agents, for connections that the database's side opens.
#[cfg(feature = "reverse")]
mod listeners {
    cmap_conformance::conformance_of_listeners!((ignored "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol") crate::harness::Global);
}

mod alone {
    cmap_conformance::conformance!(ignored "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol" alone crate::harness::Global);

    #[cfg(unix)]
    #[test]
    #[ignore = "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol"]
    fn a_process_without_descriptors_is_told_so_and_recovers() {
        cmap_conformance::descriptors::a_process_without_descriptors_is_told_so_and_recovers::<crate::harness::Global>(
        );
    }
}
