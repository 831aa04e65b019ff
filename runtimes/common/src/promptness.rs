//! Whether the reply to a command is likely to be there as soon as the command was sent.
//!
//! It is where the server shares the client's CPU and is let run at once, and hardly ever elsewhere. To look for it in vain
//! costs a system call; to wait for what is there already costs a turn of the reactor, some seven times as much. So a
//! connection looks first as long as that pays at times, and else waits, but for a look now and then.

/// After so many replies in a row that were not there, nobody looks any more.
const GIVES_UP: u8 = 8;

/// After so many, somebody looks again.
const TRIES_AGAIN: u8 = 64;

/// After so many in a row that were there, the next is waited for: whoever finds replies always never waits, and others of the
/// same thread would not get their turn.
const YIELDS: u8 = 64;

/// How prompt a server was of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promptness {
    /// How many replies in a row were there.
    prompt: u8,
    /// How many replies in a row were not.
    late: u8,
}

impl Promptness {
    /// Whether to look for the next reply before waiting for it.
    pub(crate) fn is_likely(self) -> bool {
        self.late < GIVES_UP && self.prompt < YIELDS
    }

    /// Takes note of a reply, and whether it was there at the first look.
    pub(crate) fn observe(&mut self, was_there: bool) {
        (self.prompt, self.late) = match (was_there, self.late) {
            (true, _) => (self.prompt.saturating_add(1), 0),
            (false, TRIES_AGAIN..) => (0, GIVES_UP - 1),
            (false, late) => (0, late + 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `replies`, of which `are_there` says which are there at once, are looked for first.
    fn looks(replies: u32, are_there: impl Fn(u32) -> bool) -> u32 {
        let mut promptness = Promptness::default();
        let mut looks = 0;
        for reply in 0..replies {
            let looked = promptness.is_likely();
            looks += u32::from(looked);
            promptness.observe(looked && are_there(reply));
        }
        looks
    }

    #[test]
    fn replies_that_are_always_there_are_looked_for_but_for_one_in_65() {
        assert_eq!(looks(65 * 10, |_| true), 64 * 10);
    }

    #[test]
    fn one_in_eight_is_enough() {
        assert_eq!(looks(1000, |reply| reply % 8 == 7), 1000);
    }

    #[test]
    fn replies_that_are_never_there_are_hardly_looked_for() {
        assert_eq!(looks(8 + 58 * 100, |_| false), 8 + 100);
    }

    #[test]
    fn a_server_that_became_prompt_is_noticed() {
        let looked = looks(10_000, |reply| reply >= 5_000);

        assert!((4_800..5_100).contains(&looked), "{looked}");
    }
}
