//! The texts of those who make calls: a label, a place in the source, or both, each with a number.

use std::collections::BTreeMap;
use std::panic::Location;

use crate::watch::{LabelId, Tag, Watch};

/// The numbers of tags. There are as many as labels times places, which a program has a few of; further ones have none.
#[derive(Default)]
pub(crate) struct Holders {
    numbers: BTreeMap<(LabelId, Option<&'static Location<'static>>), u32>,
}

/// Most tags with a number.
const MOST: usize = 1024;

impl Holders {
    /// The number of a tag.
    pub(crate) fn number(&mut self, tag: Tag) -> Option<u32> {
        let key = (tag.label, tag.place);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = u32::try_from(self.numbers.len()).ok().filter(|_| self.numbers.len() < MOST)?;
        self.numbers.insert(key, number);
        Some(number)
    }

    /// The texts by their numbers.
    pub(crate) fn texts(&self, watch: &Watch) -> Vec<(u32, String)> {
        let text = |label: LabelId, place: Option<&Location<'_>>| match (watch.label_text(label), place) {
            (Some(label), Some(place)) => format!("{label} at {place}"),
            (Some(label), None) => label.to_string(),
            (None, Some(place)) => format!("a caller at {place}"),
            (None, None) => "a caller".to_owned(),
        };
        self.numbers.iter().map(|(&(label, place), &number)| (number, text(label, place))).collect()
    }
}
