//! The suite that every adapter has to pass.

mod harness;

cmap_conformance::conformance!(crate::harness::Global);
