//! The outputs that are not polled yet, in their order.
//!
//! The fast path of a call does nothing rare: it is closed while outputs are queued or calls are recorded, and once the driver says so.
//! One number holds all, so that an absent recorder costs nothing.

use alloc::collections::VecDeque;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Output;

/// A queue of outputs.
#[derive(Clone)]
pub(super) struct Outputs<C> {
    queue: VecDeque<Output<C>>,
    /// The outputs that are queued, one more while calls are recorded, and one more once the driver has closed the fast path.
    obstacles: usize,
    is_closed: bool,
}

/// The capacity that the queue keeps; the memory of a burst is given back.
const KEPT: usize = 1024;

impl<C> Outputs<C> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), obstacles: 0, is_closed: false }
    }

    /// Whether a call may take the fast path: nothing is queued, nobody records, and the driver goes on.
    #[inline(always)]
    pub(super) fn is_fast_path_open(&self) -> bool {
        self.obstacles == 0
    }

    /// Whether nothing is queued.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push_back(&mut self, output: Output<C>) {
        self.queue.push_back(output);
        self.obstacles += 1;
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Output<C>> {
        if self.queue.is_empty() {
            if self.queue.capacity() > 2 * KEPT {
                self.queue.shrink_to(KEPT);
            }
            return None;
        }
        self.obstacles -= 1;
        self.queue.pop_front()
    }

    /// Closes the fast path to calls that are recorded, or opens it.
    #[cfg(feature = "trace")]
    pub(super) fn set_recorded(&mut self, are_recorded: bool) {
        self.obstacles = self.queue.len() + usize::from(are_recorded) + usize::from(self.is_closed);
    }

    /// Closes the fast path for good.
    pub(super) fn close_fast_path(&mut self) {
        self.obstacles += usize::from(!self.is_closed);
        self.is_closed = true;
    }

    /// A copy without the sockets.
    pub(super) fn snapshot(&self) -> Outputs<()> {
        self.queue.iter().map(Output::snapshot).collect::<VecDeque<_>>().into()
    }
}

impl<C> From<VecDeque<Output<C>>> for Outputs<C> {
    fn from(queue: VecDeque<Output<C>>) -> Self {
        Self { obstacles: queue.len(), queue, is_closed: false }
    }
}

impl<C> Extend<Output<C>> for Outputs<C> {
    fn extend<T: IntoIterator<Item = Output<C>>>(&mut self, outputs: T) {
        outputs.into_iter().for_each(|output| self.push_back(output));
    }
}

impl<C: fmt::Debug> fmt::Debug for Outputs<C> {
    /// Whether calls are recorded makes no difference between topologies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(f)
    }
}

impl<C: Serialize> Serialize for Outputs<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.queue.serialize(serializer)
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for Outputs<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        VecDeque::deserialize(deserializer).map(Self::from)
    }
}
