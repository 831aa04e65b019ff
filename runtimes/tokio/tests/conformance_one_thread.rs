//! The suite that every adapter has to pass, on tokio's runtime with one thread.

mod harness;

cmap_conformance::conformance!(ignored "full: the cases pass with many threads, and in virtual time with one" crate::harness::OneThread);
