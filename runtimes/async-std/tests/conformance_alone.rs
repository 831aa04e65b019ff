//! Those cases of the suite that measure how tasks are served beside others: a program of their own.

mod harness;

cmap_conformance::conformance!(ignored "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol" alone crate::harness::Global);
