//! The example `own-runtime` passes the suite.

#![allow(dead_code, reason = "the example is a program, whose main function is not called here")]

#[path = "../examples/own-runtime.rs"]
mod own_runtime;

struct OneThread;

impl cmap_conformance::Harness for OneThread {
    type Runtime = own_runtime::Own;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_io::block_on(future)
    }
}

cmap_conformance::conformance!(ignored "full: the example is one file, and the cases pass on the adapters" crate::OneThread);
