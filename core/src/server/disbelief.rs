//! How many checks in a row are ignored because they find something older than what is known.

use serde::{Deserialize, Serialize};

/// Counts the checks in a row that found something older than what was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disbelief(u8);

impl Disbelief {
    /// The number of older checks in a row at which one is believed.
    const MOST: u8 = 3;

    /// Records whether a check found something `older` than what is known; returns whether to believe it.
    pub(crate) fn believes(&mut self, older: bool) -> bool {
        self.0 = if older { self.0.saturating_add(1) } else { 0 };
        let believes = !older || self.0 >= Self::MOST;
        if believes {
            self.0 = 0;
        }
        believes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_older_check_in_a_row_is_believed() {
        let mut disbelief = Disbelief::default();

        let believed = [true, true, false, true, true, true, true].map(|older| disbelief.believes(older));

        assert_eq!(believed, [false, false, true, false, false, true, false]);
    }
}
