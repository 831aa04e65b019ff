//! The suite that every adapter has to pass.

mod harness;

cmap_conformance::conformance!(ignored "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol" crate::harness::Global);
