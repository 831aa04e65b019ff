//! Which available connection serves next: the one returned last, the one returned first, or any.
//!
//! The list of available connections is in the order of their return whatever the choice, so maintenance still closes the
//! coldest. Only the first choice has a fast path.

use super::connections::Stage;
use super::list::Key;
use super::output::{Action, Delivery, Output};
use super::{CheckOutId, Pool};
use crate::options::Reuse;
use crate::time::Instant;

impl<C> Pool<C> {
    /// Whether an option keeps check-outs or check-ins from the fast path.
    pub(super) fn takes_detours(&self) -> bool {
        self.limits.reuse != Reuse::LastIn || self.retirement.is_some()
    }

    /// The available connection that is next, by the option `reuse`.
    pub(super) fn next_available(&mut self) -> Option<Key> {
        let available = &self.connections.available;
        match self.limits.reuse {
            Reuse::LastIn => available.back(),
            Reuse::FirstIn => available.front(),
            Reuse::Random if available.len() < 2 => available.front(),
            Reuse::Random => {
                let last = available.len().checked_sub(1)?;
                let place = u32::try_from(self.random.up_to(last.into())).unwrap_or(last);
                self.connections.available_at(place)
            }
        }
    }

    /// As [`serve_arrival`](Self::serve_arrival) where the hottest connection is not the one to take.
    #[cold]
    pub(super) fn serve_arrival_by_choice(&mut self, check_out: Key, deadline: Option<Instant>) -> Option<Delivery<C>> {
        let id = self.wait_queue.id(check_out);
        self.enqueue(check_out, deadline);
        self.take_back_delivery(id)
    }

    /// The delivery to `id`, if it is the last output.
    fn take_back_delivery(&mut self, id: CheckOutId) -> Option<Delivery<C>> {
        match self.outputs.pop_back()? {
            Output::Action(Action::Deliver { check_out, connection, socket }) if check_out == id => {
                Some(Delivery { check_out, connection, socket })
            }
            other @ (Output::Action(_) | Output::Event(_)) => {
                self.outputs.push_back(other);
                None
            }
        }
    }

    /// Gives an available connection to a check-out that has stopped waiting.
    pub(super) fn take_for(&mut self, key: Key, check_out: Key) -> Option<Delivery<C>> {
        debug_assert!(matches!(self.connections.slot(key).stage, Stage::Available { .. }));
        self.connections.make_hottest(key);
        self.take_hottest_for(check_out)
    }
}
