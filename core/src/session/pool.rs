//! A client's free server sessions. The one that came back last is given out first, so that few are kept alive.
//!
//! | a session | taken | brought back |
//! |---|---|---|
//! | lasts for a minute or more | given out | kept at the front |
//! | lasts for less than a minute | discarded, the next one is tried | discarded |
//! | dirty | | discarded |
//! | made before a fork | | discarded |

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::server_session::{ServerSession, SessionId};
use crate::time::Instant;

/// A session that lasts for less than this is not used any more: its id might arrive too late.
const MARGIN: Duration = Duration::from_secs(60);

/// The most ids that one endSessions may name (SES-9).
pub const MOST_IDS: usize = 10_000;

/// The free server sessions of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPool {
    /// The one that came back last is at the front.
    free: VecDeque<ServerSession>,
    /// Behind a load balancer sessions last for ever (SES-7).
    load_balanced: bool,
    /// How often the process was forked.
    forks: u32,
}

impl SessionPool {
    /// An empty pool.
    pub fn new(load_balanced: bool) -> Self {
        Self { load_balanced, ..Self::default() }
    }

    /// A server session that will last, if one is free; `timeout` is how long the topology keeps unused ones, `None` if it does
    /// not say. Those that will not last are discarded on the way (SES-5).
    pub fn take(&mut self, now: Instant, timeout: Option<Duration>) -> Option<ServerSession> {
        while let Some(session) = self.free.pop_front() {
            if self.lasts(&session, now, timeout) {
                return Some(session);
            }
        }
        None
    }

    /// A new server session, for when none is free.
    pub fn make(&self, now: Instant, id: SessionId) -> ServerSession {
        ServerSession::new(id, now, self.forks)
    }

    /// A server session is not in use any more (SES-6).
    pub fn give_back(&mut self, now: Instant, timeout: Option<Duration>, session: ServerSession) {
        while self.free.back().is_some_and(|oldest| !self.lasts(oldest, now, timeout)) {
            self.free.pop_back();
        }
        let is_of_this_process = session.forks == self.forks;
        if !session.is_dirty && is_of_this_process && self.lasts(&session, now, timeout) {
            self.free.push_front(session);
        }
    }

    /// How many are free.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether none is free.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes out the ids of the free ones, at most [`MOST_IDS`] of them, for endSessions (SES-9).
    pub fn take_ids(&mut self) -> Vec<SessionId> {
        let count = self.free.len().min(MOST_IDS);
        self.free.drain(..count).map(|session| session.id()).collect()
    }

    /// Call this in a process that was forked: the sessions belong to its parent, and are not ended (SES-12).
    pub fn reset_after_fork(&mut self) {
        self.free.clear();
        self.forks = self.forks.wrapping_add(1);
    }

    fn lasts(&self, session: &ServerSession, now: Instant, timeout: Option<Duration>) -> bool {
        let unused = now.saturating_since(session.last_use);
        self.load_balanced || timeout.is_none_or(|timeout| timeout.saturating_sub(unused) >= MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30 * 60));
    const NOW: Instant = Instant::ORIGIN;

    fn id(number: u8) -> SessionId {
        SessionId::of_random([number; 16])
    }

    fn after(seconds: u64) -> Instant {
        NOW + Duration::from_secs(seconds)
    }

    /// A pool whose sessions, by number, were used last at these seconds.
    fn pool_of<const N: usize>(used: [(u8, u64); N]) -> SessionPool {
        let mut pool = SessionPool::new(false);
        for (number, at) in used {
            let session = pool.make(after(at), id(number));
            pool.free.push_front(session);
        }
        pool
    }

    #[test]
    fn the_session_that_came_back_last_is_taken_first_ses_4() {
        let mut pool = pool_of([(1, 0), (2, 0)]);

        assert_eq!(pool.take(NOW, TIMEOUT).unwrap().id(), id(2));
        assert_eq!(pool.take(NOW, TIMEOUT).unwrap().id(), id(1));
        assert_eq!(pool.take(NOW, TIMEOUT), None);
    }

    #[test]
    fn a_session_that_is_about_to_expire_is_not_taken_ses_5() {
        let mut pool = pool_of([(1, 100), (2, 0)]);

        let taken = pool.take(after(29 * 60 + 1), TIMEOUT).unwrap();

        assert_eq!((taken.id(), pool.len()), (id(1), 0));
    }

    #[test]
    fn a_session_s_return_discards_those_that_expire_from_the_back_ses_6() {
        let mut pool = pool_of([(1, 0), (2, 0), (3, 100)]);
        let session = pool.make(after(100), id(4));

        pool.give_back(after(29 * 60 + 1), TIMEOUT, session);

        assert_eq!(pool.take_ids(), [id(4), id(3)]);
    }

    #[test]
    fn a_session_that_expires_or_is_dirty_does_not_come_back_ses_8() {
        let mut pool = SessionPool::new(false);
        let mut dirty = pool.make(NOW, id(1));
        dirty.mark_dirty();
        let old = pool.make(NOW, id(2));

        pool.give_back(NOW, TIMEOUT, dirty);
        pool.give_back(after(29 * 60 + 1), TIMEOUT, old);

        assert!(pool.is_empty());
    }

    #[test]
    fn the_time_of_a_session_begins_anew_with_each_use_ses_5() {
        let mut pool = SessionPool::new(false);
        let mut session = pool.make(NOW, id(1));
        session.mark_used(after(1000));

        pool.give_back(after(1000 + 29 * 60), TIMEOUT, session);

        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn behind_a_load_balancer_and_without_a_timeout_no_session_expires_ses_7_x_60() {
        let mut pool = pool_of([(1, 0)]);
        assert!(pool.clone().take(after(1_000_000), None).is_some());

        pool.load_balanced = true;
        assert!(pool.take(after(1_000_000), TIMEOUT).is_some());
    }

    #[test]
    fn ids_come_out_in_batches_ses_9() {
        let mut pool = SessionPool::new(false);
        for number in 0..=u16::try_from(MOST_IDS).unwrap() {
            let mut random = [0; 16];
            random[..2].copy_from_slice(&number.to_le_bytes());
            let session = pool.make(NOW, SessionId::of_random(random));
            pool.give_back(NOW, TIMEOUT, session);
        }

        assert_eq!([pool.take_ids().len(), pool.take_ids().len(), pool.take_ids().len()], [MOST_IDS, 1, 0]);
    }

    #[test]
    fn a_forked_process_has_none_of_its_parent_s_sessions_ses_12() {
        let mut pool = pool_of([(1, 0)]);
        let in_use = pool.make(NOW, id(2));

        pool.reset_after_fork();
        pool.give_back(NOW, TIMEOUT, in_use);

        assert!(pool.is_empty());
    }
}
