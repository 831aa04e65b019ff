//! Where the decisions of a script come from: the random numbers of a seed, or a fuzzer's bytes.

use cmap_core::random::Random;

/// How many calls the script of a seed has.
const CALLS: u64 = 80;

/// Most calls of a script of bytes.
const MOST_CALLS: u64 = 200;

/// How many bytes the options of a pool have.
const HEAD: usize = 20;

/// How many bytes a call has, used or not. With the same length wherever it stands, inputs that a fuzzer cuts, copies or joins at calls
/// are calls again.
const CALL: usize = 12;

/// Decisions, in their order.
pub(crate) struct Choices<'a> {
    source: Source<'a>,
    calls_left: u64,
}

enum Source<'a> {
    Seed(Random),
    /// The bytes of the present call, and those of the calls after it.
    Bytes(&'a [u8], &'a [u8]),
}

impl<'a> Choices<'a> {
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self { source: Source::Seed(Random::new(seed)), calls_left: CALLS }
    }

    pub(crate) fn of_bytes(bytes: &'a [u8]) -> Self {
        let (head, calls) = bytes.split_at(bytes.len().min(HEAD));
        Self { source: Source::Bytes(head, calls), calls_left: MOST_CALLS }
    }

    /// Whether there is another call; its decisions come next.
    pub(crate) fn next_call(&mut self) -> bool {
        if let Source::Bytes(present, rest) = &mut self.source {
            let next = rest.split_at(rest.len().min(CALL));
            (*present, *rest) = next;
            self.calls_left = if present.is_empty() { 0 } else { self.calls_left };
        }
        let is_another = self.calls_left > 0;
        self.calls_left = self.calls_left.saturating_sub(1);
        is_another
    }

    /// A number from 0 to `most`, both included. Of many numbers, a byte chooses among 256 that lie evenly.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        match &mut self.source {
            Source::Seed(random) => random.up_to(most),
            Source::Bytes(present, _) => {
                let Some((&byte, rest)) = present.split_first() else { return 0 };
                *present = rest;
                let byte = u64::from(byte);
                if most > 255 { most / 255 * byte } else { byte % (most + 1) }
            }
        }
    }
}
