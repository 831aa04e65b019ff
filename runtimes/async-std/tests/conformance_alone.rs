//! Those cases of the suite that measure how tasks are served beside others: a program of their own.

mod harness;

cmap_conformance::conformance!(alone crate::harness::Global);
