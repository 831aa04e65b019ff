//! Programs on real sockets: [`serve`] puts the embedded test server behind them; [`interop`] lets official drivers and our
//! client talk to it, and our client to foreign servers; [`soak`] keeps the clients of all runtimes busy for a long time
//! while that server is killed and started again.

pub mod interop;
pub mod serve;
pub mod soak;
