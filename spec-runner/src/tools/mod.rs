//! Programs on real sockets: [`demo`] shows the pool at work; [`serve`] puts the embedded test server behind sockets;
//! [`interop`] lets official drivers and our client talk to it, and our client to foreign servers; [`soak`] keeps the clients
//! of all runtimes busy for a long time while that server is killed and started again. [`plan`] connects to nothing: it counts the
//! connections of a deployment. [`replay`] reads a file: what a client recorded. [`simulate`] looks for broken laws in virtual time.

pub mod demo;
pub mod interop;
mod live_table;
pub mod plan;
pub mod replay;
pub mod serve;
mod server_process;
pub mod simulate;
pub mod soak;
