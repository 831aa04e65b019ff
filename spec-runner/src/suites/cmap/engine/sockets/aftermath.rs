//! After a test: the pool is closed, everything is returned, and nothing may remain, as on the engine `core`.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::pool::Counts;
use cmap_runtime::Runtime;
use cmap_runtime::bson::rawdoc;

use super::session::Session;
use crate::suites::cmap::engine::balance::imbalances;

/// How long closing and returning may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl<R: Runtime> Session<R> {
    /// Ends the tasks, closes the pool, returns everything, and notes the leftovers.
    pub(super) async fn settle(self: &Arc<Self>) {
        self.change(|stage| stage.is_over = true);
        if self.within(PATIENCE, self.until(|stage| (stage.tasks == 0).then_some(()))).await.is_none() {
            self.violation("after the end there are still tasks");
        }
        if let Some(control) = &self.control {
            let off = rawdoc! { "configureFailPoint": "failCommand", "mode": "off" };
            control.configure(&off).await.err().into_iter().for_each(|problem| self.violation(problem));
        }
        self.pool.close();
        let returned = self.change(|stage| {
            let labelled = std::mem::take(&mut stage.labels).into_values();
            labelled.chain(std::mem::take(&mut stage.nameless)).collect::<Vec<_>>()
        });
        drop(returned);
        if let Err(gone) = self.pool.closed(PATIENCE).await {
            self.violation(gone);
        }
        self.hear_everything().await;
        self.look_at_what_is_left();
    }

    fn look_at_what_is_left(&self) {
        let stats = self.pool.stats();
        if stats.counts != Counts::default() {
            self.violation(format!("after the end there are still {}", stats.counts));
        }
        if stats.created != stats.closed.total() {
            self.violation(format!("{} connections were created, {} closed", stats.created, stats.closed.total()));
        }
        imbalances(|name| self.journal.count(name)).into_iter().for_each(|imbalance| self.violation(imbalance));
    }
}
