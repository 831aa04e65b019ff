//! bb8's pool, which is tokio's alone.

use std::convert::Infallible;
use std::time::Duration;

use cmap_benchmarks::contender::{Contender, SIZE};

/// bb8's pool.
#[derive(Clone)]
pub(crate) struct Bb8(bb8::Pool<Manager>);

/// Makes connections that are numbers, and always good.
pub(crate) struct Manager;

impl Bb8 {
    pub(crate) fn within(limit: Duration) -> Self {
        let size = u32::try_from(SIZE).unwrap();
        Self(bb8::Pool::builder().max_size(size).connection_timeout(limit).build_unchecked(Manager))
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = u64;
    type Error = Infallible;

    async fn connect(&self) -> Result<u64, Infallible> {
        Ok(7)
    }

    async fn is_valid(&self, _: &mut u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u64) -> bool {
        false
    }
}

impl Contender for Bb8 {
    type Guard = bb8::PooledConnection<'static, Manager>;

    async fn check_out(&self) -> Option<Self::Guard> {
        self.0.get_owned().await.ok()
    }
}
