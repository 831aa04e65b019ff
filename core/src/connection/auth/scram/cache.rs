//! Keeps derived keys, so that a pool pays for PBKDF2 once and not with every connection (AUTH-17).
//!
//! Connections that start together ask for the same keys together. The first is told to derive them; those behind it
//! are told to wait, and ask again when any derivation ended. So the cache knows no waiters, and who stops waiting
//! tells nobody. Should the one that derives give up, the next that asks takes over.
//!
//! The mark of a derivation in progress is a hint and no lock: it can be evicted like any entry, and then somebody
//! derives the same keys again, which is a waste and no error.

use alloc::vec::Vec;

use super::keys::{DeriveKey, DerivedKeys, KeyId};

/// The derived keys of one server's connections, in the order of their last use.
///
/// One entry is enough for one user of one server. More are needed where several users share it, and while a server's
/// salt changes.
#[derive(Debug)]
pub struct KeyCache {
    /// The one used last stands last.
    entries: Vec<Entry>,
    capacity: usize,
    last_ticket: u64,
}

/// What the cache says to a request.
#[derive(Debug)]
#[must_use]
pub enum Lookup {
    /// Here they are.
    Ready(DerivedKeys),
    /// Derive them, then [`finish`](KeyCache::finish) or [`abandon`](KeyCache::abandon).
    Derive(Ticket),
    /// Somebody derives them. Ask again when any `finish` or `abandon` happened.
    Wait,
}

/// The right to derive keys, and the duty to say what became of it. Were it forgotten, others would wait until their
/// establishment times out, or until its mark is evicted.
#[derive(Debug)]
#[must_use = "others wait until it is finished or abandoned"]
pub struct Ticket(u64);

#[derive(Debug)]
struct Entry {
    id: KeyId,
    state: State,
}

#[derive(Debug)]
enum State {
    Deriving { ticket: u64 },
    Ready(DerivedKeys),
}

impl KeyCache {
    /// Enough for the few users of one server.
    pub const DEFAULT_CAPACITY: usize = 8;

    /// An empty cache for at most `capacity` entries, and at least one.
    pub fn new(capacity: usize) -> Self {
        Self { entries: Vec::new(), capacity: capacity.max(1), last_ticket: 0 }
    }

    /// The keys that `request` asks for, or who gets them.
    pub fn look_up(&mut self, request: &DeriveKey) -> Lookup {
        let Some(place) = self.entries.iter().position(|entry| entry.id == *request.id()) else {
            self.last_ticket += 1;
            let ticket = self.last_ticket;
            self.insert(Entry { id: request.id().clone(), state: State::Deriving { ticket } });
            return Lookup::Derive(Ticket(ticket));
        };
        let entry = self.entries.remove(place);
        let lookup = match &entry.state {
            State::Ready(keys) => Lookup::Ready(keys.clone()),
            State::Deriving { .. } => Lookup::Wait,
        };
        self.entries.push(entry);
        lookup
    }

    /// The keys are derived.
    pub fn finish(&mut self, ticket: Ticket, keys: &DerivedKeys) {
        self.abandon(ticket);
        self.entries.retain(|entry| entry.id != *keys.id());
        self.insert(Entry { id: keys.id().clone(), state: State::Ready(keys.clone()) });
    }

    /// The keys will not be derived: the connection that wanted to is gone.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is used once")]
    pub fn abandon(&mut self, ticket: Ticket) {
        self.entries.retain(|entry| match entry.state {
            State::Deriving { ticket: own } => own != ticket.0,
            State::Ready(_) => true,
        });
    }

    /// Adds an entry; where there is no room, the one that was not used for longest goes.
    fn insert(&mut self, entry: Entry) {
        if self.entries.len() >= self.capacity {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }
}

impl Default for KeyCache {
    fn default() -> Self {
        Self::new(Self::DEFAULT_CAPACITY)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::secret::SecretBytes;
    use super::super::hash::ScramHash;
    use super::*;

    fn request(salt: u8) -> DeriveKey {
        DeriveKey::new(ScramHash::Sha256, SecretBytes::copy_of(b"pencil"), alloc::vec![salt], 4096)
    }

    fn keys(salt: u8) -> DerivedKeys {
        request(salt).finish(&SecretBytes::zeros(32))
    }

    fn derive(lookup: Lookup) -> Ticket {
        match lookup {
            Lookup::Derive(ticket) => ticket,
            Lookup::Ready(_) | Lookup::Wait => panic!("{lookup:?}"),
        }
    }

    #[test]
    fn keys_are_derived_once_and_then_found() {
        let mut cache = KeyCache::default();
        let ticket = derive(cache.look_up(&request(1)));
        assert!(matches!(cache.look_up(&request(1)), Lookup::Wait));
        assert!(matches!(cache.look_up(&request(2)), Lookup::Derive(_)));

        cache.finish(ticket, &keys(1));
        assert!(matches!(cache.look_up(&request(1)), Lookup::Ready(found) if found.id() == keys(1).id()));
    }

    #[test]
    fn an_abandoned_derivation_passes_to_the_next() {
        let mut cache = KeyCache::default();
        let ticket = derive(cache.look_up(&request(1)));
        cache.abandon(ticket);
        let ticket = derive(cache.look_up(&request(1)));

        cache.finish(ticket, &keys(1));
        assert!(matches!(cache.look_up(&request(1)), Lookup::Ready(_)));
    }

    #[test]
    fn the_entry_that_was_used_least_recently_makes_room() {
        let mut cache = KeyCache::new(2);
        for salt in [1, 2] {
            let ticket = derive(cache.look_up(&request(salt)));
            cache.finish(ticket, &keys(salt));
        }
        assert!(matches!(cache.look_up(&request(1)), Lookup::Ready(_)));
        let late = derive(cache.look_up(&request(3)));

        assert!(matches!(cache.look_up(&request(1)), Lookup::Ready(_)));
        let again = derive(cache.look_up(&request(2)));
        assert_eq!(cache.entries.len(), 2);
        // The mark of 3 was evicted; its keys are welcome all the same, and so are keys for another ticket's request.
        cache.finish(late, &keys(3));
        cache.finish(again, &keys(3));
        assert!(matches!(cache.look_up(&request(3)), Lookup::Ready(_)));
        assert!(cache.entries.len() <= 2);
    }
}
