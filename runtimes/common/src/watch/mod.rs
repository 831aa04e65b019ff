//! Who asked for a connection, and what its holder does with it: kept next to the machine, under the same lock.
//!
//! Which connections are in use, which check-outs wait, and since when, the machine knows by its state. Here is what only
//! callers know: the label of a check-out, its place in the source, and the last command on a connection. It is noted by the
//! numbers that the machine gives check-outs, which it uses again, so nothing is removed and nothing drifts: an entry whose
//! check-out has ended is not read any more.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the notes |
//! | `labels` | texts with small numbers |
//! | `holder` | holders and waiters, as users see them |
//! | `metrics` | the figures of pools for the crate `metrics` |
//! | `status` | all that a client does at one moment |
//! | `uses` | how long connections were used, and which uses are slow |

mod holder;
mod labels;
#[cfg(feature = "metrics")]
mod metrics;
mod status;
mod uses;

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::pool::{CheckOutId, HeldBy};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, SelectionId};

pub(crate) use self::holder::Who;
pub use self::holder::{CommandInUse, Holder, Place, WaitingCheckOut, WaitsFor};
pub use self::labels::Label;
pub(crate) use self::labels::{LabelId, Labels};
#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "metrics")]
pub(crate) use self::metrics::PoolFigures;
pub(crate) use self::status::shown;
pub use self::status::{ClientStatus, ServerLine};
pub use self::uses::{LabelUses, PastUse, PossibleLeak, UseReport};
pub(crate) use self::uses::{NotedUse, Uses};

/// Who asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) label: LabelId,
    pub(crate) place: Option<&'static Location<'static>>,
}

/// The notes.
pub(crate) struct Watch {
    /// Labels of check-outs. Callers search them without the client's lock.
    labels: Arc<Labels>,
    commands: Labels,
    /// By the server of a check-out, and by its number there.
    tags: Vec<Vec<Tag>>,
    /// Places in `tags`.
    size: usize,
    /// Of those that wait for a server first.
    of_selections: BTreeMap<SelectionId, Tag>,
    /// What was last said of those who hold a server's connections, and when.
    pub(crate) held_by: Option<(HeldAt, Arc<[HeldBy]>)>,
    /// How long connections were used, where possible leaks are watched.
    pub(crate) uses: Option<Uses>,
}

/// A moment of a server's pool: the time, and how many connections were checked out and in by then.
pub(crate) type HeldAt = (ServerId, Instant, u64, u64);

/// The last command on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotedCommand {
    pub(crate) name: LabelId,
    pub(crate) began: Instant,
    pub(crate) ended: Option<Instant>,
}

/// Most check-outs at a time that are noted, 16 bytes each; further ones are listed without a label.
const MOST: usize = 384;

/// Most check-outs at a time that wait for a server and are noted.
const MOST_SELECTIONS: usize = 128;

impl Tag {
    /// That of a caller at this place.
    #[inline]
    #[track_caller]
    pub(crate) fn here() -> Self {
        Self { label: LabelId::NONE, place: Some(Location::caller()) }
    }
}

impl Watch {
    pub(crate) fn new(labels: Arc<Labels>, leak_detection_threshold: Option<Duration>) -> Self {
        Self {
            labels,
            commands: Labels::new("(other commands)"),
            tags: Vec::new(),
            size: 0,
            of_selections: BTreeMap::new(),
            held_by: None,
            uses: leak_detection_threshold.map(Uses::new),
        }
    }

    pub(crate) fn command(&self, name: &str) -> LabelId {
        self.commands.id(name)
    }

    pub(crate) fn label_text(&self, id: LabelId) -> Option<Arc<str>> {
        self.labels.get(id).map(Arc::clone)
    }

    pub(crate) fn command_text(&self, id: LabelId) -> Option<Arc<str>> {
        self.commands.get(id).map(Arc::clone)
    }

    /// Uses that are over, by label, and the slowest of them.
    pub(crate) fn uses_by_label(&self) -> Vec<LabelUses> {
        self.uses.as_ref().map(|uses| uses.by_label(|label| self.label_text(label))).unwrap_or_default()
    }

    pub(crate) fn slowest_uses(&self) -> &[NotedUse] {
        self.uses.as_ref().map_or(&[], Uses::slowest)
    }

    /// How often a label was given that there was no room for.
    pub(crate) fn folded_labels(&self) -> u64 {
        self.labels.folded()
    }

    /// Notes who has begun a check-out.
    #[inline]
    pub(crate) fn note(&mut self, check_out: CheckOut, tag: Tag) {
        match check_out {
            CheckOut::Started(check_out) => self.note_started(check_out, tag),
            CheckOut::Selecting(selection) => {
                if self.of_selections.len() < MOST_SELECTIONS {
                    self.of_selections.insert(selection, tag);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn note_started(&mut self, check_out: CheckOutId, tag: Tag) {
        let (server, index) = (check_out.server_index(), check_out.index());
        match self.tags.get_mut(server).and_then(|of_server| of_server.get_mut(index)) {
            Some(noted) => *noted = tag,
            None => self.extend(server, index, tag),
        }
    }

    #[cold]
    fn extend(&mut self, server: usize, index: usize, tag: Tag) {
        if self.tags.len() <= server {
            if server >= MOST {
                return;
            }
            self.tags.resize_with(server + 1, Vec::new);
        }
        let Some(of_server) = self.tags.get_mut(server) else { return };
        let missing = (index + 1).saturating_sub(of_server.len());
        if missing <= MOST - self.size {
            self.size += missing;
            of_server.resize(index, Tag::default());
            of_server.push(tag);
        }
    }

    /// A check-out that waited for a server waits for a connection now.
    pub(crate) fn select(&mut self, selection: SelectionId, check_out: CheckOutId) {
        let tag = self.of_selections.remove(&selection).unwrap_or_default();
        self.note_started(check_out, tag);
    }

    /// A check-out waits for a server again.
    pub(crate) fn reselect(&mut self, check_out: CheckOutId, selection: SelectionId) {
        self.note(CheckOut::Selecting(selection), self.tag(check_out));
    }

    /// A check-out that waited for a server has ended.
    pub(crate) fn forget(&mut self, selection: SelectionId) {
        self.of_selections.remove(&selection);
    }

    /// The tag of a check-out that has not ended: its label and its place in the source.
    #[inline]
    pub(crate) fn tag(&self, check_out: CheckOutId) -> Tag {
        let of_server = self.tags.get(check_out.server_index());
        of_server.and_then(|tags| tags.get(check_out.index())).copied().unwrap_or_default()
    }

    pub(crate) fn tag_of_selection(&self, selection: SelectionId) -> Tag {
        self.of_selections.get(&selection).copied().unwrap_or_default()
    }

    /// How many entries there are for check-outs that wait for a server.
    pub(crate) fn entries(&self) -> usize {
        self.of_selections.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use cmap_core::pool::{Durations, PhaseDurations};

    use super::*;

    #[test]
    fn a_watch_takes_64_kib_at_most() {
        let tags = MOST * size_of::<Tag>();
        let selections = MOST_SELECTIONS * (size_of::<SelectionId>() + size_of::<Tag>());
        // Its text, and its number.
        let label = 64 + 2 * size_of::<LabelId>() + size_of::<OnceLock<Box<str>>>();
        // Those of four pools, and of all that have gone; the phases are those of all.
        let durations = 5 * size_of::<Durations>() + size_of::<PhaseDurations>();
        let uses = size_of::<Uses>() + Uses::BYTES;

        assert!(tags + selections + 2 * 128 * label + durations + uses < 64 * 1024);
    }
}
