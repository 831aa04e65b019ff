//! Doubly linked lists threaded through the entries of an arena.
//!
//! Waiters leave the middle of their queue when they are cancelled, connections the middle of theirs when a peer hangs
//! up. Both must cost the same with a million members as with ten, and allocate nothing: so the links live in the
//! entries themselves, and a list is two keys and a length. An entry has one [`Links`] for each list it can be in at
//! the same time; the `ROLE` of a list says which of them it uses.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// The role of the list of available connections.
pub(crate) const AVAILABLE: usize = 0;
/// The role of the lists of a service's connections: the available, and the others.
pub(crate) const OF_SERVICE: usize = 1;

/// The role of the lists of waiters: the queue, and one for each connection that somebody waits for.
pub(crate) const WAITERS: usize = 0;

/// The place of an entry in its arena.
pub(crate) type Key = u32;

/// No entry: the end of a list.
pub(crate) const NIL: Key = Key::MAX;

/// An arena's entry that can be in a list of this role.
pub(crate) trait Linked<const ROLE: usize> {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// Where an entry stands in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Links {
    pub(crate) previous: Key,
    pub(crate) next: Key,
}

/// The ends of a list. The front is its oldest member, the back its newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct List<const ROLE: usize> {
    front: Key,
    back: Key,
    len: u32,
}

/// The finding of a check: that `problem` is there, unless what it looked at `is_right`.
pub(super) fn ensure(is_right: bool, problem: &'static str) -> Result<(), &'static str> {
    if is_right { Ok(()) } else { Err(problem) }
}

/// The entry at a place of a table. Where the table ends before, it grows by entries that are `absent`.
pub(crate) fn reach<T: Clone>(entries: &mut Vec<T>, key: Key, absent: T) -> &mut T {
    let place = key as usize;
    if entries.len() <= place {
        entries.resize(place + 1, absent);
    }
    &mut entries[place]
}

impl Links {
    pub(crate) const UNLINKED: Self = Self { previous: NIL, next: NIL };
}

impl<const ROLE: usize> Default for List<ROLE> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const ROLE: usize> List<ROLE> {
    pub(crate) const EMPTY: Self = Self { front: NIL, back: NIL, len: 0 };

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<Key> {
        (self.front != NIL).then_some(self.front)
    }

    pub(crate) fn back(&self) -> Option<Key> {
        (self.back != NIL).then_some(self.back)
    }

    /// Adds an entry that is in no list of this role.
    #[inline(always)]
    pub(crate) fn push_back<N: Linked<ROLE>>(&mut self, arena: &mut [N], key: Key) {
        *arena[key as usize].links_mut() = Links { previous: self.back, next: NIL };
        match self.back {
            NIL => self.front = key,
            back => arena[back as usize].links_mut().next = key,
        }
        self.back = key;
        self.len += 1;
    }

    /// Removes the newest member, whose key is at hand.
    #[inline(always)]
    pub(crate) fn remove_back<N: Linked<ROLE>>(&mut self, arena: &mut [N], key: Key) {
        debug_assert_eq!(self.back, key);
        self.back = core::mem::replace(arena[key as usize].links_mut(), Links::UNLINKED).previous;
        match self.back {
            NIL => self.front = NIL,
            back => arena[back as usize].links_mut().next = NIL,
        }
        self.len -= 1;
    }

    /// Removes a member, wherever it stands.
    pub(crate) fn remove<N: Linked<ROLE>>(&mut self, arena: &mut [N], key: Key) {
        self.remove_inline(arena, key);
    }

    /// Removes a member, wherever it stands; inlined, for the fast path.
    #[inline(always)]
    pub(crate) fn remove_inline<N: Linked<ROLE>>(&mut self, arena: &mut [N], key: Key) {
        let Links { previous, next } = core::mem::replace(arena[key as usize].links_mut(), Links::UNLINKED);
        match previous {
            NIL => self.front = next,
            previous => arena[previous as usize].links_mut().next = next,
        }
        match next {
            NIL => self.back = previous,
            next => arena[next as usize].links_mut().previous = previous,
        }
        self.len -= 1;
    }

    /// Adds an entry that is in no list of this role, in front of the first member that `is_behind` holds for, or at the
    /// back.
    pub(crate) fn insert_in_front_of_first<N: Linked<ROLE>>(
        &mut self,
        arena: &mut [N],
        key: Key,
        is_behind: impl Fn(&N) -> bool,
    ) {
        let Some(next) = self.iter(arena).find(|&member| is_behind(&arena[member as usize])) else {
            return self.push_back(arena, key);
        };
        let previous = core::mem::replace(&mut arena[next as usize].links_mut().previous, key);
        *arena[key as usize].links_mut() = Links { previous, next };
        match previous {
            NIL => self.front = key,
            previous => arena[previous as usize].links_mut().next = key,
        }
        self.len += 1;
    }

    /// The member in front of `key`.
    pub(crate) fn previous<N: Linked<ROLE>>(&self, arena: &[N], key: Key) -> Option<Key> {
        let previous = arena[key as usize].links().previous;
        (previous != NIL).then_some(previous)
    }

    /// The member behind `key`.
    pub(crate) fn next<N: Linked<ROLE>>(&self, arena: &[N], key: Key) -> Option<Key> {
        let next = arena[key as usize].links().next;
        (next != NIL).then_some(next)
    }

    /// The members from front to back.
    pub(crate) fn iter<N: Linked<ROLE>>(self, arena: &[N]) -> impl Iterator<Item = Key> {
        core::iter::successors(self.front(), move |&key| self.next(arena, key))
    }

    /// The members from front to back; ends early where the links are broken (a restored state may contradict itself).
    pub(crate) fn check<N: Linked<ROLE>>(&self, arena: &[N]) -> Result<Vec<Key>, &'static str> {
        let mut members = Vec::new();
        let (mut previous, mut key) = (NIL, self.front);
        while key != NIL {
            let entry = arena.get(key as usize).ok_or("a link leads out of the arena")?;
            ensure(entry.links().previous == previous, "a link does not lead back")?;
            members.push(key);
            ensure(members.len() <= self.len as usize, "a list is longer than it says")?;
            (previous, key) = (key, entry.links().next);
        }
        let is_whole = previous == self.back && members.len() == self.len as usize;
        ensure(is_whole, "a list ends before its end")?;
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    struct Entry(Links);

    impl Linked<0> for Entry {
        fn links(&self) -> &Links {
            &self.0
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    fn arena(len: usize) -> Vec<Entry> {
        (0..len).map(|_| Entry(Links::UNLINKED)).collect()
    }

    #[test]
    fn members_leave_from_either_end_and_from_the_middle() {
        let mut arena = arena(5);
        let mut list = List::<0>::EMPTY;
        for key in 0..5 {
            list.push_back(&mut arena, key);
        }

        list.remove(&mut arena, 2);
        list.remove(&mut arena, 0);
        list.remove_back(&mut arena, 4);

        assert_eq!(list.check(&arena), Ok(vec![1, 3]));
        assert_eq!((list.front(), list.back(), list.len()), (Some(1), Some(3), 2));
    }

    #[test]
    fn a_broken_list_is_noticed() {
        let mut arena = arena(3);
        let mut list = List::<0>::EMPTY;
        for key in 0..3 {
            list.push_back(&mut arena, key);
        }

        arena[1].0.next = 0;
        assert!(list.check(&arena).is_err());
        arena[1].0.next = 7;
        assert_eq!(list.check(&arena), Err("a link leads out of the arena"));
    }
}
