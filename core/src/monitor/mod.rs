//! The monitor of one server: checks it by one hello after another, and measures how long it takes to answer.
//!
//! A server that says which version of its topology it has is asked to *stream*: it answers after every change, or
//! after heartbeatFrequencyMS, and goes on answering unasked; round-trip times are then measured on a socket of their
//! own (MON-6, MON-7, MON-10). Any other server is *polled*: asked, and asked again heartbeatFrequencyMS after it
//! answered. A check comes sooner on request, but never within half a second of the check before (MON-3).
//!
//! No server can keep its monitor busy. The lost connection of a known server is replaced at once (MON-9), but only
//! once in half a second: one that is lost again sooner is replaced half a second later. A server is polled if its
//! awaited replies come too soon ten times in a row: sooner than half of heartbeatFrequencyMS after the reply before,
//! and without a newer topologyVersion. It is polled until the process id in its topologyVersion changes, or this
//! process forks.
//!
//! The driving rule is the pool's: call any method, drain `Monitor::poll_output`, ask `Monitor::poll_timeout`. Sockets
//! are named by [`Socket`]; `Monitor::write_to` appends the bytes to send to the caller's buffer, and the caller hands
//! in the bytes received.
//!
//! A monitor stands next to its server. Its driver tells the server what the monitor [found](Finding) and its
//! [events](HeartbeatEvent), and makes the [calls](Call) of the monitor that the server asks for.
//!
//! The monitor keeps its own time limits, connectTimeoutMS for connecting and for each reply, and never timeoutMS (CSOT-14).
//!
//! The machine itself needs the feature `wire`; its descriptions and events do not.

mod description;
mod event;
mod finding;
#[cfg(feature = "wire")]
mod hello_reply;
#[cfg(feature = "wire")]
mod link;
#[cfg(feature = "wire")]
mod machine;
#[cfg(feature = "wire")]
mod monitor_options;
#[cfg(feature = "wire")]
mod output;
#[cfg(feature = "wire")]
mod round_trip_times;
#[cfg(feature = "wire")]
mod stream_pace;

pub use self::description::{ServerDescription, ServerType};
pub use self::event::{HeartbeatEvent, MonitorConnection};
pub use self::finding::{Call, Finding};
#[cfg(feature = "wire")]
pub use self::{
    machine::Monitor,
    monitor_options::{MIN_HEARTBEAT_FREQUENCY, MonitorOptions},
    output::{Action, Output, Role, Socket, Timeout, TimeoutReason},
    round_trip_times::RoundTripTimes,
};
