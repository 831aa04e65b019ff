//! How many lines of the log clients can cause: strangers must not be able to fill a disk, or to hide something among a million lines.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use cmap_core::time::Instant;

/// That second.
const STRETCH: Duration = Duration::from_secs(1);

/// A limit of lines, which counts those that it leaves out.
#[derive(Debug)]
pub(super) struct LogLimit {
    /// How many lines there are in a second.
    most: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    pub(super) fn of(most: u32) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Whether a line is written now, and how many were left out since the last one that was.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now.saturating_since(began) >= STRETCH) {
            (state.began, state.lines) = (Some(now), 0);
        }
        if state.lines >= self.most {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_written_and_the_next_one_tells_how_many_were_not_x_142() {
        let (limit, at) = (LogLimit::of(10), |millis| Instant::ORIGIN + Duration::from_millis(millis));

        let written = (0..15).filter(|millis| limit.admit(at(*millis)).is_some()).count();

        assert_eq!(written, 10);
        assert_eq!(limit.admit(at(999)), None);
        assert_eq!(limit.admit(at(1_000)), Some(6));
        assert_eq!(limit.admit(at(1_001)), Some(0));
    }
}
