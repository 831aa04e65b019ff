//! What each user has at the queue: its commands that wait, how many of its commands run, and what it has used.
//!
//! The next turn is that of the user who has used least, of those that wait and may have another place. Users of a group have the group's
//! turns: the group that has used least is next, and in it the user who has. Where two are equal, the longer wait decides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cmap_core::time::Instant;

use super::usage::{Stretch, Usage};
use super::{Class, Placed, QueueLimits, Ticket, but_a_quarter};
use crate::users::{Group, Share};

/// How many accounts of those who have nothing at the queue are kept.
const MOST_IDLE: usize = 1_000;

/// A command in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) bytes: usize,
}

/// All accounts.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    of_user: BTreeMap<Arc<str>, Account>,
    of_group: BTreeMap<Arc<str>, GroupAccount>,
    /// What the users may have of whom something is said.
    shares: BTreeMap<Arc<str>, Share>,
    /// How many are in line, of each class.
    in_line: [usize; Class::ALL.len()],
    stretch: Stretch,
    /// The most that somebody had used who had a turn.
    level: u64,
}

#[derive(Clone, Debug, Default)]
struct Account {
    share: Share,
    usage: Usage,
    running: Running,
    /// Those that have had their turn, and wait for a server.
    parked: usize,
    lines: [VecDeque<Waiter>; Class::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupAccount {
    usage: Usage,
    running: Running,
    in_line: usize,
    /// The most that one of its users had used who had a turn.
    level: u64,
}

/// How many commands run.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    all: u32,
    /// How many of them have places that others want.
    ordinary: u32,
    /// How many of these wait for documents.
    awaiting: u32,
}

/// Whose turn it is.
struct Candidate<'a> {
    user: &'a Arc<str>,
    group: Option<&'a Group>,
    class: Class,
    ticket: Ticket,
    /// What its group has used, or the user without one.
    of_all: u64,
    /// What the user has used.
    own: u64,
}

impl Default for Accounts {
    fn default() -> Self {
        let (of_user, of_group, shares) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let stretch = Stretch { number: 1, began: Instant::ORIGIN };
        Self { of_user, of_group, shares, in_line: [0; Class::ALL.len()], stretch, level: 0 }
    }
}

impl Accounts {
    pub(super) fn set_shares(&mut self, shares: BTreeMap<Arc<str>, Share>) {
        self.of_group.values_mut().for_each(|group| group.in_line = 0);
        for (user, account) in &mut self.of_user {
            account.share = shares.get(user).cloned().unwrap_or_default();
            if let Some(group) = &account.share.group {
                self.of_group.entry(Arc::clone(&group.name)).or_default().in_line += account.in_line();
            }
        }
        self.shares = shares;
    }

    /// A command of `user` has a place from now on. Returns the group that it counts for, too.
    pub(super) fn begin(&mut self, now: Instant, user: &Arc<str>, class: Class) -> Option<Arc<Group>> {
        self.ensure(user);
        let account = self.of_user.get_mut(user)?;
        account.running.begin(class);
        if class.is_charged() {
            account.usage.begin(now, self.stretch);
        }
        let group = account.share.group.as_ref()?;
        let of_group = self.of_group.entry(Arc::clone(&group.name)).or_default();
        of_group.running.begin(class);
        if class.is_charged() {
            of_group.usage.begin(now, self.stretch);
        }
        Some(Arc::clone(group))
    }

    /// It has none any more.
    pub(super) fn end(&mut self, now: Instant, placed: &Placed) {
        let Placed { user, group, class, since } = placed;
        if let Some(account) = self.of_user.get_mut(user) {
            account.running.end(*class);
            if class.is_charged() {
                account.usage.end(now, *since, account.share.weight, self.stretch);
            }
        }
        if let Some(group) = group
            && let Some(of_group) = self.of_group.get_mut(&group.name)
        {
            of_group.running.end(*class);
            if class.is_charged() {
                of_group.usage.end(now, *since, group.weight, self.stretch);
            }
        }
    }

    /// Whether another command of this class would be within what the user and its group may have.
    pub(super) fn may_run(&mut self, user: &Arc<str>, class: Class, limits: &QueueLimits) -> bool {
        self.ensure(user);
        self.of_user.get(user).is_some_and(|account| self.may_account_run(account, class, limits))
    }

    fn may_account_run(&self, account: &Account, class: Class, limits: &QueueLimits) -> bool {
        let most = account.share.running.unwrap_or(limits.running_per_user).max(1);
        if !class.is_ordinary() {
            return account.running.all < most.saturating_add(limits.reserved);
        }
        let group = account.share.group.as_ref();
        let of_group = group.and_then(|group| group.running.zip(self.of_group.get(&group.name)));
        account.running.has_room(class, most)
            && of_group.is_none_or(|(most, of_group)| of_group.running.has_room(class, most.max(1)))
    }

    /// Puts a command to the end of its line.
    pub(super) fn push(&mut self, now: Instant, user: &Arc<str>, waiter: Waiter) {
        if self.in_line == [0; Class::ALL.len()] {
            self.stretch = Stretch { number: self.stretch.number + 1, began: now };
            self.level = 0;
            self.of_group.values_mut().for_each(|group| group.level = 0);
        }
        self.ensure(user);
        let Some(account) = self.of_user.get_mut(user) else { return };
        let mut level = self.level;
        if let Some(group) = &account.share.group {
            let of_group = self.of_group.entry(Arc::clone(&group.name)).or_default();
            if of_group.in_line == 0 {
                of_group.usage.raise(now, level, group.weight, self.stretch);
            }
            level = of_group.level;
        }
        if account.in_line() == 0 {
            account.usage.raise(now, level, account.share.weight, self.stretch);
        }
        if let Some(line) = account.lines.get_mut(waiter.ticket.class as usize) {
            line.push_back(waiter);
        }
        self.count(user, waiter.ticket.class, true);
    }

    /// Takes the next one out of its line, of those of `classes` that may have another place.
    pub(super) fn pop(&mut self, now: Instant, classes: &[Class], limits: &QueueLimits) -> Option<(Arc<str>, Waiter)> {
        let mut next: Option<Candidate<'_>> = None;
        for (user, account) in &self.of_user {
            let Some((class, ticket)) = self.first_of(account, classes, limits) else { continue };
            let own = account.usage.counted(now, account.share.weight, self.stretch);
            let group = account.share.group.as_deref();
            let of_all = group.map_or(own, |group| {
                let usage = self.of_group.get(&group.name).map(|it| it.usage).unwrap_or_default();
                usage.counted(now, group.weight, self.stretch)
            });
            let candidate = Candidate { user, group, class, ticket, of_all, own };
            if next.as_ref().is_none_or(|next| candidate.is_before(next)) {
                next = Some(candidate);
            }
        }
        let Candidate { user, group, class, of_all, own, .. } = next?;
        let (user, group) = (Arc::clone(user), group.map(|group| Arc::clone(&group.name)));
        self.level = self.level.max(of_all);
        if let Some(of_group) = group.and_then(|group| self.of_group.get_mut(&group)) {
            of_group.level = of_group.level.max(own);
        }
        let waiter = self.of_user.get_mut(&user)?.lines.get_mut(class as usize)?.pop_front()?;
        self.count(&user, class, false);
        Some((user, waiter))
    }

    /// Whether one of `classes` waits that may have another place.
    pub(super) fn has_next(&self, classes: &[Class], limits: &QueueLimits) -> bool {
        classes.iter().any(|class| self.in_line(*class) > 0)
            && self.of_user.values().any(|account| self.first_of(account, classes, limits).is_some())
    }

    /// The one that waits longest of `classes`, if the account may have another place.
    fn first_of(&self, account: &Account, classes: &[Class], limits: &QueueLimits) -> Option<(Class, Ticket)> {
        let firsts = classes.iter().filter_map(|class| {
            let first = account.lines.get(*class as usize)?.front()?;
            self.may_account_run(account, *class, limits).then_some((*class, first.ticket))
        });
        firsts.min_by_key(|(_, ticket)| ticket.number)
    }

    /// Takes the first one of this user's out of its line that waits for a place which others want.
    pub(super) fn pop_ordinary_of(&mut self, user: &str) -> Option<Waiter> {
        let account = self.of_user.get_mut(user)?;
        let line = account.lines.iter_mut().filter(|line| line.front().is_some_and(|it| it.ticket.class.is_ordinary()));
        let line = line.min_by_key(|line| line.front().map(|first| first.ticket.number))?;
        let waiter = line.pop_front()?;
        self.count(user, waiter.ticket.class, false);
        Some(waiter)
    }

    /// Takes it out of its line, if it is there.
    pub(super) fn remove(&mut self, user: &str, ticket: Ticket) -> Option<Waiter> {
        let line = self.of_user.get_mut(user)?.lines.get_mut(ticket.class as usize)?;
        let place = line.iter().position(|waiter| waiter.ticket == ticket)?;
        let waiter = line.remove(place)?;
        self.count(user, ticket.class, false);
        Some(waiter)
    }

    /// The user with most in line for a place that others want, of the group of `user` or of all. `user`, if no other one has more.
    pub(super) fn longest_or(&self, user: &Arc<str>, of_its_group: bool) -> Arc<str> {
        let group = self.of_user.get(user).and_then(|account| account.share.group.as_ref());
        let those = self.of_user.iter().filter(|(_, account)| !of_its_group || account.share.group.as_ref() == group);
        let longest = those.max_by_key(|(_, account)| account.ordinary_in_line());
        let own = self.of_user.get(user).map_or(0, Account::ordinary_in_line);
        match longest {
            Some((other, account)) if account.ordinary_in_line() > own => Arc::clone(other),
            Some(_) | None => Arc::clone(user),
        }
    }

    /// How many bytes a user has in line for places that others want.
    pub(super) fn bytes_of(&self, user: &str) -> usize {
        self.of_user.get(user).map_or(0, Account::ordinary_bytes)
    }

    /// By how many bytes users have more than so many, all together.
    pub(super) fn bytes_beyond(&self, bytes: usize) -> usize {
        self.of_user.values().map(|account| account.ordinary_bytes().saturating_sub(bytes)).sum()
    }

    /// The user who has most bytes in line for places that others want.
    pub(super) fn heaviest(&self) -> Option<Arc<str>> {
        let heaviest = self.of_user.iter().max_by_key(|(_, account)| account.ordinary_bytes());
        heaviest.map(|(user, _)| Arc::clone(user))
    }

    /// A command of `user` waits for a server.
    pub(super) fn park(&mut self, user: &Arc<str>) {
        self.ensure(user);
        self.of_user.get_mut(user).into_iter().for_each(|account| account.parked += 1);
    }

    /// It does so no more. Whether there was one.
    pub(super) fn unpark(&mut self, user: &str) -> bool {
        let Some(account) = self.of_user.get_mut(user).filter(|account| account.parked > 0) else { return false };
        account.parked -= 1;
        true
    }

    /// Whether the user has as many that wait as it may have.
    pub(super) fn is_full(&self, user: &str, limits: &QueueLimits) -> bool {
        let account = self.of_user.get(user);
        let share = account.map(|account| &account.share).or_else(|| self.shares.get(user));
        let most = share.and_then(|share| share.waiting).unwrap_or(limits.waiting_per_user);
        account.map_or(0, Account::ordinary_waiting) >= most
    }

    /// Whether the user's group has as many that wait as it may have.
    pub(super) fn is_group_full(&self, user: &str) -> bool {
        let Some(group) = self.of_user.get(user).and_then(|account| account.share.group.as_ref()) else { return false };
        let of_group = self.of_user.values().filter(|other| other.share.group.as_ref() == Some(group));
        let waiting = of_group.map(Account::ordinary_waiting).sum::<usize>();
        group.waiting.is_some_and(|most| waiting >= most)
    }

    /// How many are in line, of a class.
    pub(super) fn in_line(&self, class: Class) -> usize {
        self.in_line.get(class as usize).copied().unwrap_or_default()
    }

    /// How many of a user's wait.
    pub(super) fn waiting_of(&self, user: &str) -> usize {
        let account = self.of_user.get(user);
        account.map_or(0, |account| account.parked + account.lines.iter().map(VecDeque::len).sum::<usize>())
    }

    /// How many of a user's run.
    pub(super) fn running_of(&self, user: &str) -> usize {
        self.of_user.get(user).map_or(0, |account| account.running.all as usize)
    }

    /// Makes sure that the user has an account.
    fn ensure(&mut self, user: &Arc<str>) {
        if self.of_user.contains_key(user) {
            return;
        }
        if self.of_user.len() >= MOST_IDLE {
            let stretch = self.stretch;
            self.of_user.retain(|_, account| !account.is_idle() || !account.usage.is_forgotten(stretch));
        }
        let share = self.shares.get(user).cloned().unwrap_or_default();
        self.of_user.insert(Arc::clone(user), Account { share, ..Account::default() });
    }

    /// Counts one that comes into a line, or goes.
    fn count(&mut self, user: &str, class: Class, comes: bool) {
        let change = |count: &mut usize| *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        self.in_line.get_mut(class as usize).into_iter().for_each(change);
        let group = self.of_user.get(user).and_then(|account| account.share.group.as_ref());
        if let Some(of_group) = group.and_then(|group| self.of_group.get_mut(&group.name)) {
            change(&mut of_group.in_line);
        }
    }
}

impl Account {
    fn in_line(&self) -> usize {
        self.lines.iter().map(VecDeque::len).sum()
    }

    /// How many are in line for a place that others want.
    fn ordinary_in_line(&self) -> usize {
        self.in_line() - self.lines.get(Class::LetsGo as usize).map_or(0, VecDeque::len)
    }

    fn ordinary_bytes(&self) -> usize {
        self.lines.iter().flatten().filter(|it| it.ticket.class.is_ordinary()).map(|it| it.bytes).sum()
    }

    /// Without those that let go and wait for their turn.
    fn ordinary_waiting(&self) -> usize {
        self.ordinary_in_line() + self.parked
    }

    fn is_idle(&self) -> bool {
        self.running.all == 0 && self.parked == 0 && self.in_line() == 0
    }
}

impl Running {
    fn begin(&mut self, class: Class) {
        self.all += 1;
        self.ordinary += u32::from(class.is_ordinary());
        self.awaiting += u32::from(class == Class::Awaits);
    }

    fn end(&mut self, class: Class) {
        self.all = self.all.saturating_sub(1);
        self.ordinary = self.ordinary.saturating_sub(u32::from(class.is_ordinary()));
        self.awaiting = self.awaiting.saturating_sub(u32::from(class == Class::Awaits));
    }

    /// Whether one more is within `most` of those that others want. Those that wait for documents leave a part of them to the other commands.
    fn has_room(self, class: Class, most: u32) -> bool {
        self.ordinary < most && (class != Class::Awaits || self.awaiting < but_a_quarter(most))
    }
}

impl Candidate<'_> {
    fn is_before(&self, other: &Self) -> bool {
        let used = |it: &Self| match (self.group, other.group) {
            (Some(one), Some(another)) if one.name == another.name => it.own,
            _ => it.of_all,
        };
        (used(self), self.ticket.number) < (used(other), other.ticket.number)
    }
}
