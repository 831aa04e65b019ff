//! The suite that every adapter has to pass, on tokio's runtime with one thread.

mod harness;

cmap_conformance::conformance!(crate::harness::OneThread);
