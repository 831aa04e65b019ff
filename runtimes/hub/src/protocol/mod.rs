//! The hub without sockets: what one client's bytes ask for, who may ask it, where it goes, and what the client gets.
//!
//! ```text
//! bytes --Line--> Request --rules, sessions, holdings--> Forward (to be run upstream) --> reply --Line--> bytes
//! ```
//!
//! | file | content |
//! |---|---|
//! | `line` | one client's connection: its stages from the greeting to its end |
//! | `request`, `outgoing` | a command as it came, and as it goes on |
//! | `introduction` | who asks, for the server's log |
//! | `read_preference` | the server that it wants |
//! | `targets` | the collections that a command touches |
//! | `reading` | documents that decide something: what cannot be read is an error |
//! | `greeting`, `login` | the hub's own hello; SCRAM and certificates |
//! | `holdings` | the cursors and transactions of a connection, each at its server |
//! | `sessions` | whose a logical session is |
//! | `operations` | what runs, for those who ask and who end it |
//! | `memory` | how many bytes of clients there may be |
//! | `queue` | whose turn it is to use an upstream connection |
//! | `common` | what connections share: sessions and doors |
//! | `doors` | how many connections there may be |
//! | `gauge` | high-water marks |
//! | `names` | names of clients' making, as a log can show them |
//! | `refusal`, `passing` | errors of the hub's own; what upstream's errors become |
//!
//! Nothing here knows a socket, a clock or a source of randomness: time and chance are inputs.

mod common;
mod doors;
mod gauge;
mod greeting;
mod holdings;
mod introduction;
mod line;
mod login;
mod memory;
mod names;
mod operations;
mod outgoing;
mod passing;
mod queue;
mod read_preference;
mod reading;
mod refusal;
mod request;
mod sessions;
mod targets;

pub use common::Common;
pub use doors::{DoorLimits, Doors, Full};
pub use gauge::Gauge;
pub use greeting::{Begins, Facts};
pub use holdings::{CursorAt, Holdings, TransactionAt};
pub use introduction::introduction;
pub use line::{Ending, Line, LineOutput, Surroundings};
pub(crate) use login::is_login;
pub use memory::{Holder, Memory, MemoryLimits, UNCOUNTED};
pub(crate) use names::shown;
pub use operations::{Operation, OperationId, Operations, Whose};
pub(crate) use passing::unanswered;
pub use passing::{Passed, pass};
pub(crate) use queue::but_a_quarter;
pub use queue::{Class, Crowded, Entered, Placed, Queue, QueueLimits, Ticket};
pub use refusal::Refusal;
pub(crate) use request::session_document;
pub use request::{Fault, Forward, Part, Refused, Request, Route, SessionId};
pub use sessions::{SessionFault, Sessions};
pub use targets::{Target, targets};
