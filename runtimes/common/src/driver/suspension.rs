//! Notices that the machine was suspended: the wall clock went on, and the monotonic one stood still.

use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::topology::Input;

use super::Driver;

use crate::runtime::Runtime;
use crate::runtime::sync::Arc;
use crate::time::Clock;

/// The wall clock may be set while the process runs, by less than this as a rule. A step that is taken for a suspension
/// costs one look at each idle connection.
const LEAST: Duration = Duration::from_secs(5);

/// The two clocks when they were last compared.
pub(super) struct Suspension {
    now: Instant,
    unix_time: Duration,
}

impl<R: Runtime> Driver<R> {
    /// The machine was suspended: has all available connections checked before their next use.
    pub(crate) fn resume(self: &Arc<Self>) {
        self.call(Input::Resume);
    }
}

impl Suspension {
    pub(super) fn watch<R: Runtime>(clock: &Clock<R>) -> Self {
        Self { now: clock.now(), unix_time: clock.runtime().unix_time() }
    }

    /// Whether the machine was suspended since the last call.
    pub(super) fn has_ended<R: Runtime>(&mut self, clock: &Clock<R>) -> bool {
        let before = std::mem::replace(self, Self::watch(clock));
        let counted = self.now.saturating_since(before.now);
        self.unix_time.saturating_sub(before.unix_time) > counted.saturating_add(LEAST)
    }
}
