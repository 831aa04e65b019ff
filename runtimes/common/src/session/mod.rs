//! Sessions: the client's server sessions and its cluster time, and the sessions of users.

mod last_words;
mod sessions;
mod user_session;

pub(crate) use self::last_words::LastWords;
pub(crate) use self::sessions::{Lent, Sessions};
pub use self::user_session::{Session, SessionOptions};
