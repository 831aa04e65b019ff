//! The suite that every adapter has to pass, on tokio's runtime with several threads.

mod harness;

cmap_conformance::conformance!(crate::harness::ManyThreads);
