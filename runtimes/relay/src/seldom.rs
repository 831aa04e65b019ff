//! Reports now and then what can happen again and again.

use std::time::Duration;

use cmap_core::time::Instant;

/// How long nothing is reported after something was.
const PAUSE: Duration = Duration::from_secs(10);

/// Tells once in ten seconds, and counts the others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seldom {
    /// The end of the pause.
    until: Option<Instant>,
    others: u64,
}

impl Seldom {
    /// How many were not told since the last one, if it is time to tell one.
    pub(crate) fn may_tell(&mut self, now: Instant) -> Option<u64> {
        if self.until.is_some_and(|until| now < until) {
            self.others += 1;
            return None;
        }
        self.until = Some(now + PAUSE);
        Some(std::mem::take(&mut self.others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_once_in_ten_seconds_with_its_number() {
        let mut seldom = Seldom::default();
        let told = [0, 1, 9_999, 10_000, 10_001, 30_000].map(|millis| seldom.may_tell(Instant::from_millis(millis)));

        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
