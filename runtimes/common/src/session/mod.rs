//! Sessions: the client's server sessions and its cluster time, and the sessions of users with their transactions.
//!
//! | file | what it holds |
//! |---|---|
//! | `sessions` | the server sessions of a client, and its cluster time |
//! | `user_session`, `options` | a user's own session, and what it can be asked for |
//! | `transaction` | its transactions, and what repeats them |
//! | `labelled` | errors by which a transaction is repeated |
//! | `unfinished` | the end of a transaction that nobody waits for any more |
//! | `last_words` | what a client that is closed tells its servers |

mod labelled;
mod last_words;
mod options;
mod sessions;
mod transaction;
mod unfinished;
mod user_session;

pub use self::labelled::Labelled;
pub(crate) use self::last_words::LastWords;
pub use self::options::{Consistency, SessionOptions};
pub(crate) use self::sessions::{Borrowed, Sessions};
pub use self::user_session::Session;
