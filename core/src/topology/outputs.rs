//! The outputs that are not polled yet, in their order.

use alloc::collections::VecDeque;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::Output;

/// A queue of outputs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Outputs<C>(VecDeque<Output<C>>);

/// The capacity that the queue keeps; the memory of a burst is given back.
const KEPT: usize = 1024;

impl<C> Outputs<C> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Whether nothing is queued.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push_back(&mut self, output: Output<C>) {
        self.0.push_back(output);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Output<C>> {
        if self.0.is_empty() {
            if self.0.capacity() > 2 * KEPT {
                self.0.shrink_to(KEPT);
            }
            return None;
        }
        self.0.pop_front()
    }

    /// A copy without the sockets.
    pub(super) fn snapshot(&self) -> Outputs<()> {
        Outputs(self.0.iter().map(Output::snapshot).collect())
    }
}

impl<C> Extend<Output<C>> for Outputs<C> {
    fn extend<T: IntoIterator<Item = Output<C>>>(&mut self, outputs: T) {
        outputs.into_iter().for_each(|output| self.push_back(output));
    }
}

impl<C: fmt::Debug> fmt::Debug for Outputs<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
