//! Keeps derived keys, so that a pool pays for PBKDF2 once and not with every connection (AUTH-17), and decides which
//! connection derives which keys when.
//!
//! The server chooses the salt and the number of iterations, and the client does the work. A hostile server sends a new
//! salt with every conversation, so the cache alone bounds nothing. Two rules do: one derivation runs at a time, and
//! only while a connection waits for its keys.
//!
//! A connection that needs keys enters as a [`Waiter`]. Waiters are served in the order in which they entered; those that
//! wait for the same keys are served together. A waiter that gives up leaves, so a queue holds no work for connections that
//! are gone.
//!
//! The cache wakes no waiter: the caller looks up again after every change.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::keys::{DeriveKey, DerivedKeys, KeyId};
use crate::options::Secret;

/// The derived keys of one client's connections, and the queue of the connections that wait for theirs.
///
/// One key is enough for one user. A client may have many, and for a time each needs another one when the server's salt changes.
#[derive(Debug)]
pub struct KeyCache {
    /// In the order of use; the most recently used keys come last.
    known: Vec<DerivedKeys>,
    capacity: usize,
    /// By number, which is the order in which they entered.
    waiting: BTreeMap<u64, Waiting>,
    running: Option<Running>,
    /// Counts waiters.
    last_number: u64,
}

/// A connection's place in the queue. Give it back with [`leave`](KeyCache::leave), with keys or without.
#[derive(Debug)]
#[must_use = "a waiter that is not taken out with `leave` holds up those behind it"]
pub struct Waiter(u64);

/// The cache's answer to a waiter.
#[derive(Debug)]
#[must_use]
pub enum Lookup {
    /// Here they are.
    Ready(DerivedKeys),
    /// Derive them, as long as they [are wanted](KeyCache::is_wanted); then [`finish`](KeyCache::finish) or
    /// [`abandon`](KeyCache::abandon).
    Derive(Ticket),
    /// Another derivation runs, or another waiter is first. Look up again after each `finish` and `abandon`, and after
    /// each `leave` that returned true.
    Wait,
}

/// The right to derive keys, and the duty to report the result. While a ticket is out, no other is given. One that is dropped, as by
/// a panic, counts as abandoned.
#[derive(Debug)]
#[must_use = "no other waiter derives keys until it is finished, abandoned or dropped"]
pub struct Ticket(Arc<()>);

#[derive(Debug)]
struct Waiting {
    id: KeyId,
    /// As soon as there are any. Kept here because the cache may have to make room before the waiter looks.
    keys: Option<DerivedKeys>,
}

#[derive(Debug)]
struct Running {
    ticket: Weak<()>,
    id: KeyId,
}

impl KeyCache {
    /// A client may have as many users, who take turns. One user's keys take some hundred bytes.
    pub const DEFAULT_CAPACITY: usize = 1024;

    /// An empty cache that keeps at most `capacity` keys, and at least one.
    pub fn new(capacity: usize) -> Self {
        Self { known: Vec::new(), capacity: capacity.max(1), waiting: BTreeMap::new(), running: None, last_number: 0 }
    }

    /// A connection needs the keys that `request` asks for. It stands last in the queue, unless they are known.
    pub fn enter(&mut self, request: &DeriveKey) -> Waiter {
        let keys = self.known.iter().position(|keys| keys.id() == request.id()).map(|place| {
            let keys = self.known.remove(place);
            self.known.push(keys.clone());
            keys
        });
        let number = self.next_number();
        self.waiting.insert(number, Waiting { id: request.id().clone(), keys });
        Waiter(number)
    }

    /// The keys that `waiter` waits for, or a ticket if it is its turn to derive some.
    pub fn look_up(&mut self, waiter: &Waiter) -> Lookup {
        let Some(waiting) = self.waiting.get(&waiter.0) else { return Lookup::Wait };
        if let Some(keys) = &waiting.keys {
            return Lookup::Ready(keys.clone());
        }
        // A waiter for the same keys as the first may derive them in its place.
        let first = self.waiting.values().find(|waiting| waiting.keys.is_none());
        if self.runs() || first.is_none_or(|first| first.id != waiting.id) {
            return Lookup::Wait;
        }
        let ticket = Arc::new(());
        self.running = Some(Running { ticket: Arc::downgrade(&ticket), id: waiting.id.clone() });
        Lookup::Derive(Ticket(ticket))
    }

    /// A waiter has its keys or has stopped waiting. Returns whether that may have made it another waiter's turn.
    pub fn leave(&mut self, waiter: Waiter) -> bool {
        let left = self.waiting.remove(&waiter.0);
        !self.runs() && left.is_some_and(|waiting| waiting.keys.is_none())
    }

    /// Whether a waiter is left for the keys of this derivation. If not, break it off and [`abandon`](Self::abandon) it.
    pub fn is_wanted(&self, ticket: &Ticket) -> bool {
        let running = self.running.as_ref().filter(|running| running.is_of(ticket));
        running.is_some_and(|running| self.waiting.values().any(|waiting| waiting.id == running.id))
    }

    /// The keys are derived: every waiter for them has them.
    pub fn finish(&mut self, ticket: Ticket, keys: &DerivedKeys) {
        self.abandon(ticket);
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.id == *keys.id()) {
            waiting.keys = Some(keys.clone());
        }
        self.known.retain(|known| known.id() != keys.id());
        if self.known.len() >= self.capacity {
            // The keys that were not used for the longest time.
            self.known.remove(0);
        }
        self.known.push(keys.clone());
    }

    /// The keys will not be derived. It is the turn of the first waiter.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used once")]
    pub fn abandon(&mut self, ticket: Ticket) {
        self.running = self.running.take().filter(|running| !running.is_of(&ticket));
    }

    /// Forgets the keys of a password that is not used any more, whatever their salts. With SCRAM-SHA-256 those of other users with an
    /// equal password are forgotten, too. Connections that wait for keys get them all the same.
    pub fn forget(&mut self, username: &str, password: &Secret) {
        self.known.retain(|keys| !keys.id().is_of(username, password));
    }

    /// Whether a ticket is out.
    fn runs(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.ticket.strong_count() > 0)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl Running {
    fn is_of(&self, ticket: &Ticket) -> bool {
        core::ptr::eq(self.ticket.as_ptr(), Arc::as_ptr(&ticket.0))
    }
}

impl Default for KeyCache {
    fn default() -> Self {
        Self::new(Self::DEFAULT_CAPACITY)
    }
}

#[cfg(test)]
#[cfg(feature = "auth")]
mod tests {
    use proptest::prelude::*;

    use super::super::super::secret::SecretBytes;
    use super::super::hash::ScramHash;
    use super::*;

    fn request(salt: u8) -> DeriveKey {
        DeriveKey::new(ScramHash::Sha256, SecretBytes::copy_of(b"pencil"), alloc::vec![salt], 4096)
    }

    fn keys(salt: u8) -> DerivedKeys {
        request(salt).finish(&SecretBytes::zeros(32))
    }

    fn ticket(lookup: Lookup) -> Ticket {
        match lookup {
            Lookup::Derive(ticket) => ticket,
            Lookup::Ready(_) | Lookup::Wait => panic!("{lookup:?}"),
        }
    }

    fn waits(cache: &mut KeyCache, waiter: &Waiter) -> bool {
        matches!(cache.look_up(waiter), Lookup::Wait)
    }

    fn has(cache: &mut KeyCache, waiter: &Waiter, salt: u8) -> bool {
        matches!(cache.look_up(waiter), Lookup::Ready(found) if found.id() == keys(salt).id())
    }

    /// Derives and forgets the keys, so that only the cache has them.
    fn derive(cache: &mut KeyCache, salt: u8) {
        let waiter = cache.enter(&request(salt));
        let ticket = ticket(cache.look_up(&waiter));
        cache.finish(ticket, &keys(salt));
        cache.leave(waiter);
    }

    #[test]
    fn keys_are_derived_once_for_all_that_wait_for_them_and_for_those_that_come_later() {
        let mut cache = KeyCache::default();
        let [first, second] = [1, 1].map(|salt| cache.enter(&request(salt)));
        let ticket = ticket(cache.look_up(&first));
        assert!(waits(&mut cache, &second));

        cache.finish(ticket, &keys(1));

        let third = cache.enter(&request(1));
        for waiter in [first, second, third] {
            assert!(has(&mut cache, &waiter, 1));
            assert!(!cache.leave(waiter), "it was nobody's turn");
        }
    }

    #[test]
    fn one_derivation_runs_at_a_time_in_the_order_of_arrival() {
        let mut cache = KeyCache::default();
        let waiters = [1, 2, 3].map(|salt| cache.enter(&request(salt)));

        for (salt, waiter) in (1..).zip(&waiters) {
            assert!(waiters.iter().skip(usize::from(salt)).all(|later| waits(&mut cache, later)));
            let ticket = ticket(cache.look_up(waiter));
            assert!(waiters.iter().skip(usize::from(salt) - 1).all(|other| waits(&mut cache, other)));
            cache.finish(ticket, &keys(salt));
            assert!(has(&mut cache, waiter, salt));
        }
    }

    #[test]
    fn a_waiter_that_leaves_makes_way() {
        let mut cache = KeyCache::default();
        let [first, second, third] = [1, 2, 3].map(|salt| cache.enter(&request(salt)));

        assert!(cache.leave(first));
        assert!(cache.leave(second));

        let ticket = ticket(cache.look_up(&third));
        assert!(!cache.leave(third), "a derivation runs: its end is what to wait for");
        cache.abandon(ticket);
    }

    #[test]
    fn a_derivation_is_wanted_as_long_as_somebody_waits_for_its_keys() {
        let mut cache = KeyCache::default();
        let [first, other, second] = [1, 2, 1].map(|salt| cache.enter(&request(salt)));
        let ticket = ticket(cache.look_up(&first));

        cache.leave(first);
        assert!(cache.is_wanted(&ticket));
        cache.leave(second);
        assert!(!cache.is_wanted(&ticket));

        assert!(waits(&mut cache, &other), "it has not ended yet");
        cache.abandon(ticket);
        assert!(matches!(cache.look_up(&other), Lookup::Derive(_)));
    }

    #[test]
    fn an_abandoned_derivation_passes_to_the_next_that_waits_for_it() {
        let mut cache = KeyCache::default();
        let [first, second] = [1, 1].map(|salt| cache.enter(&request(salt)));
        let dropped = ticket(cache.look_up(&first));
        cache.leave(first);

        cache.abandon(dropped);

        let ticket = ticket(cache.look_up(&second));
        assert!(cache.is_wanted(&ticket));
    }

    #[test]
    fn a_ticket_that_is_dropped_lets_the_next_waiter_derive() {
        let mut cache = KeyCache::default();
        let waiters = [1, 2].map(|salt| cache.enter(&request(salt)));
        let [first, second] = &waiters;
        let dropped = ticket(cache.look_up(first));
        assert!(waits(&mut cache, second));

        drop(dropped);

        let ticket = ticket(cache.look_up(first));
        assert!(cache.is_wanted(&ticket));
    }

    #[test]
    fn the_keys_that_were_used_least_recently_make_room() {
        let mut cache = KeyCache::new(2);
        derive(&mut cache, 1);
        derive(&mut cache, 2);
        let used = cache.enter(&request(1));
        derive(&mut cache, 3);

        let [known, forgotten] = [1, 2].map(|salt| cache.enter(&request(salt)));

        assert!(has(&mut cache, &used, 1) && has(&mut cache, &known, 1));
        assert!(matches!(cache.look_up(&forgotten), Lookup::Derive(_)));
        assert_eq!(cache.known.len(), 2);
    }

    #[test]
    fn keys_that_had_to_make_room_still_reach_those_that_waited_for_them() {
        let mut cache = KeyCache::new(1);
        let slow = cache.enter(&request(1));
        let ticket = ticket(cache.look_up(&slow));
        cache.finish(ticket, &keys(1));
        derive(&mut cache, 2);

        assert!(has(&mut cache, &slow, 1));
    }

    #[test]
    fn the_keys_of_a_password_are_forgotten_whatever_their_salts() {
        let derived = |hash: ScramHash, password: &str, salt| {
            let prepared = hash.prepare("user", &password.into()).unwrap();
            DeriveKey::new(hash, prepared, alloc::vec![salt], 4096).finish(&SecretBytes::zeros(32))
        };
        let mut cache = KeyCache::default();
        for hash in [ScramHash::Sha1, ScramHash::Sha256] {
            cache.known.extend([derived(hash, "pencil", 1), derived(hash, "pencil", 2), derived(hash, "eraser", 1)]);
        }

        cache.forget("user", &"pencil".into());

        let kept: Vec<_> = cache.known.iter().map(DerivedKeys::id).cloned().collect();
        assert_eq!(kept, [ScramHash::Sha1, ScramHash::Sha256].map(|hash| derived(hash, "eraser", 1).id().clone()));
    }

    /// An operation on a cache; the number chooses a salt, or one of the waiters.
    #[derive(Clone, Copy, Debug)]
    enum Happening {
        Enter(u8),
        LookUp(usize),
        Leave(usize),
        Finish,
        Abandon,
    }

    fn happening() -> impl Strategy<Value = Happening> {
        prop_oneof![
            (0..4_u8).prop_map(Happening::Enter),
            (0..8_usize).prop_map(Happening::LookUp),
            (0..8_usize).prop_map(Happening::Leave),
            Just(Happening::Finish),
            Just(Happening::Abandon),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn there_is_never_more_than_one_ticket_and_nobody_waits_for_nothing(
            happenings in proptest::collection::vec(happening(), 0..60),
        ) {
            let mut cache = KeyCache::new(2);
            let (mut waiters, mut running) = (Vec::new(), None);
            for happening in happenings {
                match happening {
                    Happening::Enter(salt) => waiters.push((cache.enter(&request(salt)), salt)),
                    Happening::LookUp(place) if place < waiters.len() => {
                        let (waiter, salt) = &waiters[place];
                        match cache.look_up(waiter) {
                            Lookup::Ready(found) => prop_assert!(found.id() == request(*salt).id()),
                            Lookup::Derive(ticket) => {
                                prop_assert!(running.is_none(), "two derivations at a time");
                                running = Some((ticket, *salt));
                            }
                            Lookup::Wait => {}
                        }
                    }
                    Happening::Leave(place) if place < waiters.len() => {
                        cache.leave(waiters.remove(place).0);
                    }
                    Happening::Finish => {
                        if let Some((ticket, salt)) = running.take() {
                            cache.finish(ticket, &keys(salt));
                        }
                    }
                    Happening::Abandon => {
                        if let Some((ticket, _)) = running.take() {
                            cache.abandon(ticket);
                        }
                    }
                    Happening::LookUp(_) | Happening::Leave(_) => {}
                }
                if let Some((ticket, salt)) = &running {
                    prop_assert_eq!(cache.is_wanted(ticket), waiters.iter().any(|(_, own)| own == salt));
                }
            }
            // The remaining waiters are served one after the other.
            if let Some((ticket, _)) = running {
                cache.abandon(ticket);
            }
            for (waiter, salt) in waiters {
                match cache.look_up(&waiter) {
                    Lookup::Ready(_) => {}
                    Lookup::Derive(ticket) => cache.finish(ticket, &keys(salt)),
                    Lookup::Wait => prop_assert!(false, "the first one waits"),
                }
                prop_assert!(has(&mut cache, &waiter, salt));
                cache.leave(waiter);
            }
            prop_assert!(cache.waiting.is_empty() && cache.known.len() <= 2);
        }
    }
}
