//! Events on their way to listeners.
//!
//! The machine's events go into a queue, under the server's lock. An `EventDelivery` takes them out
//! and delivers them to the listeners without that lock: handlers, subscriptions, and the log.

mod delivery;
mod event;
mod listeners;
#[cfg(feature = "tracing")]
pub(crate) mod logging;
mod queue;
mod subscription;

pub(crate) use self::delivery::{EventDelivery, EventSource};
pub use self::event::{CommandEvent, Event, PoolEvent, SelectionEvent, ServerEvent, TopologyEvent};
pub(crate) use self::listeners::Listeners;
pub(crate) use self::queue::{AddressedEvent, EventQueue};
pub use self::subscription::{Notice, Subscription};
