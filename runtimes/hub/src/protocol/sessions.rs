//! Whose a logical session is.
//!
//! Several users of the hub may be one user upstream, where each could then go on with another's session. So the hub notes who used
//! an id first, for as long as the server keeps the session: while a command runs in it, and half an hour longer.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cmap_core::time::Instant;

use super::request::SessionId;

/// How long a session lives unused. The hello reply has it in minutes.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The sessions that are in use, and their owners.
#[derive(Clone, Debug)]
pub struct Sessions {
    by_id: BTreeMap<SessionId, Owned>,
    /// When each one is forgotten in which no command runs.
    due: BTreeSet<(Instant, SessionId)>,
    count: BTreeMap<Arc<str>, usize>,
    most_per_user: usize,
}

#[derive(Clone, Debug)]
struct Owned {
    user: Arc<str>,
    /// The connection that used it last.
    connection: i64,
    until: Instant,
    /// How many commands run in it.
    running: usize,
    /// Whether it is being killed upstream, so that the next command in it has to wait.
    is_ending: bool,
    /// The number of its last write at a server that knows no such numbers.
    written: Option<i64>,
}

/// A session cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFault {
    /// It is another user's.
    Foreign,
    /// The user has too many.
    TooMany,
}

impl Sessions {
    /// No session. A user may have so many at once.
    pub fn new(most_per_user: usize) -> Self {
        Self { by_id: BTreeMap::new(), due: BTreeSet::new(), count: BTreeMap::new(), most_per_user }
    }

    /// `user` uses a session on a connection: it is the user's from now on, for half an hour after each use.
    ///
    /// # Errors
    /// It is another's, or one too many.
    pub fn claim(&mut self, now: Instant, id: SessionId, user: &Arc<str>, connection: i64) -> Result<(), SessionFault> {
        self.forget_old(now);
        let until = now + TIMEOUT;
        match self.by_id.get_mut(&id) {
            Some(owned) if owned.user != *user => return Err(SessionFault::Foreign),
            Some(owned) => {
                self.due.remove(&(owned.until, id));
                owned.until = until;
                owned.connection = connection;
                if owned.running > 0 {
                    return Ok(());
                }
            }
            None => {
                let count = self.count.entry(Arc::clone(user)).or_default();
                if *count >= self.most_per_user {
                    return Err(SessionFault::TooMany);
                }
                *count += 1;
                let user = Arc::clone(user);
                self.by_id.insert(id, Owned { user, connection, until, running: 0, is_ending: false, written: None });
            }
        }
        self.due.insert((until, id));
        Ok(())
    }

    /// A command runs in the session, until [`end_run`](Self::end_run): for so long it is not forgotten.
    pub fn begin_run(&mut self, id: &SessionId) {
        let Some(owned) = self.by_id.get_mut(id) else { return };
        owned.running += 1;
        self.due.remove(&(owned.until, *id));
    }

    /// Notes that the run has ended.
    pub fn end_run(&mut self, now: Instant, id: &SessionId) {
        let Some(owned) = self.by_id.get_mut(id) else { return };
        owned.running = owned.running.saturating_sub(1);
        self.due.remove(&(owned.until, *id));
        owned.until = now + TIMEOUT;
        if owned.running == 0 {
            self.due.insert((owned.until, *id));
        }
    }

    /// A write of this number goes to a server that could not tell a repetition. Whether it is the first time: drivers count up.
    pub fn note_write(&mut self, id: &SessionId, number: i64) -> bool {
        let Some(owned) = self.by_id.get_mut(id) else { return true };
        let is_first = owned.written.is_none_or(|written| written < number);
        owned.written = owned.written.max(Some(number));
        is_first
    }

    /// The write of this number was not done: it may be sent again.
    pub fn forget_write(&mut self, id: &SessionId, number: i64) {
        if let Some(owned) = self.by_id.get_mut(id)
            && owned.written == Some(number)
        {
            owned.written = number.checked_sub(1);
        }
    }

    /// Whether the session is another user's.
    pub fn is_foreign(&self, id: &SessionId, user: &Arc<str>) -> bool {
        self.by_id.get(id).is_some_and(|owned| owned.user != *user)
    }

    /// A connection has gone whose command may still run in the session: whether to kill the session, until
    /// [`end_kill`](Self::end_kill). One that another connection uses by now lives on: a driver has repeated the command there.
    pub fn begin_kill(&mut self, id: &SessionId, connection: i64) -> bool {
        let Some(owned) = self.by_id.get_mut(id).filter(|owned| owned.connection == connection) else { return false };
        owned.is_ending = true;
        true
    }

    /// The session was killed, and can be used again.
    pub fn end_kill(&mut self, id: &SessionId) {
        if let Some(owned) = self.by_id.get_mut(id) {
            owned.is_ending = false;
        }
    }

    /// Whether the session is being killed.
    pub fn is_ending(&self, id: &SessionId) -> bool {
        self.by_id.get(id).is_some_and(|owned| owned.is_ending)
    }

    /// The user ends a session of their own.
    pub fn end(&mut self, id: &SessionId, user: &Arc<str>) {
        if !self.is_foreign(id, user) {
            self.remove(id);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Sets how many a user may have; those that there are stay.
    pub fn set_limit(&mut self, most_per_user: usize) {
        self.most_per_user = most_per_user;
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((until, id)) = self.due.first().copied() {
            if until > now {
                break;
            }
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &SessionId) {
        let Some(owned) = self.by_id.remove(id) else { return };
        self.due.remove(&(owned.until, *id));
        if let Some(count) = self.count.get_mut(&owned.user) {
            *count -= 1;
            if *count == 0 {
                self.count.remove(&owned.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn users() -> [Arc<str>; 2] {
        ["anna".into(), "ben".into()]
    }

    #[test]
    fn a_session_belongs_to_whoever_used_it_first_x_132() {
        let ([anna, ben], mut sessions) = (users(), Sessions::new(10));

        assert_eq!(sessions.claim(Instant::ORIGIN, [1; 16], &anna, 1), Ok(()));
        assert_eq!(sessions.claim(Instant::ORIGIN, [1; 16], &ben, 2), Err(SessionFault::Foreign));
        sessions.end(&[1; 16], &ben);
        assert!(sessions.is_foreign(&[1; 16], &ben), "another user cannot end it");
        sessions.end(&[1; 16], &anna);
        assert_eq!(sessions.claim(Instant::ORIGIN, [1; 16], &ben, 2), Ok(()));
    }

    #[test]
    fn a_session_that_is_used_on_another_connection_by_now_is_not_killed_x_137() {
        let ([anna, _], mut sessions) = (users(), Sessions::new(10));
        for connection in [1, 2] {
            sessions.claim(Instant::ORIGIN, [1; 16], &anna, connection).unwrap();
        }

        assert!(!sessions.begin_kill(&[1; 16], 1), "its command was repeated on connection 2");
        assert!(sessions.begin_kill(&[1; 16], 2));

        sessions.claim(Instant::ORIGIN, [1; 16], &anna, 3).unwrap();
        assert!(sessions.is_ending(&[1; 16]), "what comes now has to wait");
        sessions.end_kill(&[1; 16]);
        assert!(!sessions.is_ending(&[1; 16]));
    }

    #[test]
    fn a_write_that_was_sent_once_is_not_sent_again_x_140() {
        let ([anna, _], mut sessions) = (users(), Sessions::new(10));
        sessions.claim(Instant::ORIGIN, [1; 16], &anna, 1).unwrap();

        assert_eq!(
            [1, 2, 2, 1, 3].map(|number| sessions.note_write(&[1; 16], number)),
            [true, true, false, false, true]
        );
        assert!(sessions.note_write(&[2; 16], 1), "another session counts for itself");
        // Of which 3 is the last one.
        for number in [2, 3] {
            sessions.forget_write(&[1; 16], number);
        }
        assert_eq!([2, 3, 3].map(|number| sessions.note_write(&[1; 16], number)), [false, true, false]);
    }

    #[test]
    fn a_session_is_forgotten_half_an_hour_after_its_last_use() {
        let ([anna, ben], mut sessions) = (users(), Sessions::new(10));
        let at = |minutes: u32| Instant::ORIGIN + MINUTE * minutes;

        assert_eq!(sessions.claim(at(0), [1; 16], &anna, 1), Ok(()));
        assert_eq!(sessions.claim(at(20), [1; 16], &anna, 1), Ok(()));

        assert_eq!(sessions.claim(at(49), [1; 16], &ben, 2), Err(SessionFault::Foreign));
        assert_eq!(sessions.claim(at(50), [1; 16], &ben, 2), Ok(()));
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn a_session_in_which_a_command_runs_is_not_forgotten_x_132_x_137() {
        let ([anna, ben], mut sessions) = (users(), Sessions::new(10));
        let at = |minutes: u32| Instant::ORIGIN + MINUTE * minutes;
        sessions.claim(at(0), [1; 16], &anna, 1).unwrap();
        sessions.begin_run(&[1; 16]);

        assert_eq!(sessions.claim(at(40), [1; 16], &ben, 2), Err(SessionFault::Foreign));
        assert!(sessions.begin_kill(&[1; 16], 1), "it can be cut off");

        sessions.claim(at(41), [1; 16], &anna, 1).unwrap();
        sessions.end_run(at(80), &[1; 16]);
        assert_eq!(
            sessions.claim(at(109), [1; 16], &ben, 2),
            Err(SessionFault::Foreign),
            "half an hour from the reply on"
        );
        assert_eq!(sessions.claim(at(110), [1; 16], &ben, 2), Ok(()));
    }

    #[test]
    fn a_user_has_so_many_sessions_at_most() {
        let ([anna, ben], mut sessions) = (users(), Sessions::new(2));

        assert_eq!([1, 2].map(|id| sessions.claim(Instant::ORIGIN, [id; 16], &anna, 1)), [Ok(()), Ok(())]);

        assert_eq!(sessions.claim(Instant::ORIGIN, [3; 16], &anna, 1), Err(SessionFault::TooMany));
        assert_eq!(sessions.claim(Instant::ORIGIN, [3; 16], &ben, 2), Ok(()));
        sessions.end(&[1; 16], &anna);
        assert_eq!(sessions.claim(Instant::ORIGIN, [4; 16], &anna, 1), Ok(()));
    }
}
