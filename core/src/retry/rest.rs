//! The pauses before attempts that follow each other, where no server is overloaded.

use core::time::Duration;

use crate::random::Random;
use crate::time::nanos;

/// The number of retries that follow their errors at once.
const PROMPT_RETRIES: u32 = 2;

/// The longest pause before another one.
const MAX_REST: Duration = Duration::from_millis(100);

/// The pause before the next retry after so many: none at first, then by chance up to a limit that doubles with each.
pub(crate) fn rest(retries: u32, random: &mut Random) -> Duration {
    let Some(number) = retries.checked_sub(PROMPT_RETRIES) else { return Duration::ZERO };
    let doubled = 1_u64.checked_shl(number.saturating_add(1)).map(Duration::from_millis);
    let most = nanos(doubled.unwrap_or(MAX_REST).min(MAX_REST));
    Duration::from_nanos(random.up_to(most.saturating_sub(1)))
}
