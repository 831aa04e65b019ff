//! A user's choice among suitable servers (SEL-11), which is made in the task of a check-out, outside of the lock.
//!
//! The machine sees only what the choice has left. While a check-out waits for a server, its task is woken with every new
//! description, and chooses anew.

use std::sync::Arc;

use cmap_core::topology::{CheckOut, Criteria, Input, ServerSelector, TopologyDescription};

use super::Driver;
use crate::runtime::Runtime;

/// What a check-out wants, narrowed by the user's choice, and the description that the choice was made from.
pub(crate) struct Narrowed {
    pub(crate) criteria: Criteria,
    pub(crate) description: Arc<TopologyDescription>,
}

impl<R: Runtime> Driver<R> {
    /// Whether the user chooses among suitable servers.
    #[inline]
    pub(crate) fn has_server_filter(&self) -> bool {
        self.settings.server_filter.is_some()
    }

    /// Asks the user.
    pub(crate) fn narrow(&self, criteria: &Criteria) -> Narrowed {
        let (suitable, description) = {
            let state = self.lock();
            (state.machine.suitable_servers(criteria), Arc::clone(state.machine.description()))
        };
        // Criteria that make no sense are the machine's to refuse.
        let (Ok(mut suitable), Some(filter)) = (suitable, &self.settings.server_filter) else {
            return Narrowed { criteria: criteria.clone(), description };
        };
        if !suitable.is_empty() {
            filter(&mut suitable);
        }
        let servers = suitable.iter().map(|server| (*server.address).clone()).collect();
        let selector = ServerSelector::Among { selector: Arc::new(criteria.selector.clone()), servers };
        Narrowed { criteria: Criteria { selector, ..criteria.clone() }, description }
    }

    /// Whether the choice was made from what is known of the servers now.
    pub(crate) fn is_up_to_date(&self, narrowed: &Narrowed) -> bool {
        Arc::ptr_eq(self.lock().machine.description(), &narrowed.description)
    }

    /// Lets the check-out that waits at `place` want what the user has chosen anew.
    pub(crate) fn change_criteria(self: &Arc<Self>, place: usize, narrowed: &Narrowed) {
        self.drive(|state, now, _| {
            if let Some(CheckOut::Selecting(selection)) = state.waiters.check_out_at(place) {
                state.machine.call(now, Input::ChangeCriteria(selection, Box::new(narrowed.criteria.clone())), None);
            }
        });
    }
}
