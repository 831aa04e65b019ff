//! Those cases of the suite that measure how tasks are served beside others, with one thread and with several: a
//! program of their own.

mod harness;

mod many_threads {
    cmap_conformance::conformance!(alone crate::harness::ManyThreads);
}

mod one_thread {
    cmap_conformance::conformance!(alone crate::harness::OneThread);
}
