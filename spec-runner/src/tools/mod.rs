//! Programs beside the suites: [`interop`] lets official drivers and our client talk to the server of `cmap serve`, and our client to
//! foreign servers. [`simulate`] looks for broken laws in virtual time.

pub mod interop;
pub mod simulate;
