//! Logical sessions: the ids under which a server remembers a client's operations, and the cluster's time.
//!
//! A [`ServerSession`] is an id that the server knows and the number of its last transaction. Operations borrow one from the
//! client's [`SessionPool`]; a user's own session keeps one for as long as it lives, and a [`Causality`] with it, by which its
//! reads see its writes on any member.
//!
//! | file | what it holds |
//! |---|---|
//! | `server_session` | a session's id, its transaction numbers, when it was used |
//! | `pool` | the free ones |
//! | `cluster_time` | the greatest `$clusterTime` that was seen |
//! | `causality` | what one session has seen |
//! | `snapshot` | the time that a snapshot session reads at |
//! | `transaction`, `transaction_options` | a session's transaction, and its options |
//! | `with_transaction` | when to repeat a transaction that failed |
//! | `along` | what goes along with a command |

#[cfg(feature = "wire")]
mod along;
#[cfg(feature = "wire")]
mod causality;
#[cfg(feature = "wire")]
mod cluster_time;
mod pool;
mod server_session;
#[cfg(feature = "wire")]
mod snapshot;
#[cfg(feature = "wire")]
mod transaction;
#[cfg(feature = "wire")]
mod transaction_options;
mod with_transaction;

#[cfg(feature = "wire")]
pub use self::along::{Along, Composed, PLACES, Part, ReadsBy, compose, takes_session};
#[cfg(feature = "wire")]
pub use self::causality::Causality;
#[cfg(feature = "wire")]
pub use self::cluster_time::ClusterTime;
pub use self::pool::{MOST_IDS, SessionPool};
pub use self::server_session::{ServerSession, SessionId};
#[cfg(feature = "wire")]
pub use self::snapshot::Snapshot;
#[cfg(feature = "wire")]
pub use self::transaction::{
    BegunCommand, Ending, Transaction, TransactionCommand, TransactionError, TransactionState,
};
#[cfg(feature = "wire")]
pub use self::transaction_options::TransactionOptions;
pub use self::with_transaction::{AfterFailure, WithTransaction};
