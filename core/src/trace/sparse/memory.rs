//! The memory of a sparse recorder: waits and periods, bounded. It forgets by degrees.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::history::Period;
use super::super::wait::Wait;

/// Waits as they are kept: serialised.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    kept: VecDeque<(Duration, Arc<[u8]>)>,
    bytes: usize,
    limit: usize,
    /// How many were dropped.
    pub(super) dropped: u64,
}

/// The oldest waits, of which the shortest is dropped when memory is short: so the longest ones stay.
const OLDEST: usize = 64;

/// The bytes that a wait takes besides its own: its place here, and the counters of the shared bytes.
const BESIDE: usize = size_of::<(Duration, Arc<[u8]>)>() + 2 * size_of::<usize>();

impl Waits {
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, limit, dropped: 0 }
    }

    pub(super) fn push(&mut self, wait: &Wait<u32>) {
        // No type in it has a length that is not known beforehand, which alone would be refused.
        let Ok(bytes) = postcard::to_allocvec(wait) else { return };
        self.bytes += bytes.len() + BESIDE;
        self.kept.push_back((wait.duration(), bytes.into()));
        while self.bytes > self.limit && self.kept.len() > 1 {
            let shortest = self.kept.iter().take(OLDEST).enumerate().min_by_key(|(_, (duration, _))| *duration);
            let Some((_, bytes)) = shortest.map(|(place, _)| place).and_then(|place| self.kept.remove(place)) else {
                return;
            };
            self.bytes -= bytes.len() + BESIDE;
            self.dropped += 1;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is kept, without a copy of it.
    pub(super) fn shared(&self) -> Vec<Arc<[u8]>> {
        self.kept.iter().map(|(_, bytes)| Arc::clone(bytes)).collect()
    }
}

/// The periods that are kept.
#[derive(Clone, Debug)]
pub(super) struct Periods {
    kept: VecDeque<Period>,
    most: usize,
}

impl Periods {
    pub(super) fn new(bytes: usize) -> Self {
        let most = (bytes / size_of::<Period>()).max(4);
        Self { kept: VecDeque::with_capacity(most), most }
    }

    /// Adds the last one. When there is no room, the older half is joined in pairs.
    pub(super) fn push(&mut self, period: Period) {
        if self.kept.len() >= self.most {
            let half = self.most / 4;
            for place in 0..half {
                if let (Some(&one), Some(&next)) = (self.kept.get(2 * place), self.kept.get(2 * place + 1))
                    && let Some(joined) = self.kept.get_mut(place)
                {
                    *joined = one.joined(next);
                }
            }
            self.kept.drain(half..2 * half);
        }
        self.kept.push_back(period);
    }

    pub(super) fn bytes(&self) -> usize {
        self.kept.capacity() * size_of::<Period>()
    }

    pub(super) fn all(&self) -> Vec<Period> {
        self.kept.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn second(number: u64) -> Period {
        let from = Instant::from_millis(1000 * number);
        Period { served: 1, ..Period::beginning(from, from + Duration::from_secs(1)) }
    }

    #[test]
    fn periods_get_longer_with_age_and_nothing_is_lost() {
        let mut periods = Periods::new(16 * size_of::<Period>());

        (0..1000).for_each(|number| periods.push(second(number)));

        let all = periods.all();
        assert!(all.len() <= 16);
        assert_eq!(all.iter().map(|period| period.served).sum::<u32>(), 1000);
        assert!(all.windows(2).all(|pair| pair[0].to == pair[1].from));
        assert!(all[0].to.saturating_since(all[0].from) > Duration::from_secs(100));
        assert_eq!(all[all.len() - 1], second(999));
    }
}
