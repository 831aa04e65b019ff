//! What a user can set, and what each setting means.

mod pool;

pub(crate) use pool::Limits;
pub use pool::{Maintenance, PoolOptions, PoolOptionsError};
