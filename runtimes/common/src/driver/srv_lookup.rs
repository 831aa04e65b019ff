//! Looking up the SRV records of a client's connection string again, in a task of its own: it delays nothing else (DNS-14).
//!
//! The task holds the driver weakly. It ends with it, or when the client is closed, and gives up after connectTimeoutMS.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use cmap_core::pool::Cause;
use cmap_core::topology::Input;

use super::Driver;
use crate::runtime::Runtime;
use crate::socket::abort::{Abort, AbortReason};

/// The lookup that is under way, if there is one.
#[derive(Default)]
pub(super) struct SrvLookup(Option<Arc<Abort>>);

impl SrvLookup {
    /// Begins one: there is no other, because the machine asks again only after an answer.
    pub(super) fn begin(&mut self) -> Arc<Abort> {
        Arc::clone(self.0.insert(Arc::default()))
    }

    /// Aborts it. Returns its task, to be woken without the lock.
    pub(super) fn end(&mut self) -> Option<Waker> {
        self.0.take().and_then(|abort| abort.abort(AbortReason::Closed))
    }
}

/// Looks up the SRV records of `name`, and hands the answer to `driver`.
pub(super) fn begin<R: Runtime>(driver: &Arc<Driver<R>>, name: String, abort: Arc<Abort>) {
    let (settings, clock) = (Arc::clone(&driver.settings), driver.clock.clone());
    let until = clock.deadline(driver.settings.timeout);
    let (driver, home) = (Arc::downgrade(driver), clock.runtime().clone());
    home.spawn(async move {
        let lookup = clock.before(until, settings.names.srv(clock.runtime(), &name));
        let Ok(answer) = abort.during(lookup).await else { return };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer within connectTimeoutMS");
        let mut answer = answer.unwrap_or_else(|| Err(late()));
        if let (Ok(records), Some(filter)) = (&mut answer, &settings.srv_host_filter) {
            // A panic in it must not end the polling.
            records.retain(|record| catch_unwind(AssertUnwindSafe(|| filter(&record.host()))).unwrap_or(false));
        }
        if let Some(driver) = driver.upgrade() {
            driver.call(Input::Srv(answer.map_err(|error| Cause::of(&error))));
        }
    });
}
