//! How many connections there may be: of all clients, of one address, of one user, and of strangers.
//!
//! A stranger is a client that may not run commands yet: it has to log in, or to greet the hub where nobody logs in. Strangers have limits
//! of their own, so that any number of them leaves room for those who log in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gauge::Gauge;
use crate::users::Users;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Of all clients.
    pub connections: usize,
    /// Of one address.
    pub per_address: usize,
    /// Of one user.
    pub per_user: usize,
    /// Of strangers.
    pub strangers: usize,
    /// Of one address's strangers.
    pub strangers_per_address: usize,
}

/// One connection too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Of all.
    Hub,
    /// Of its address.
    Address,
    /// Of its user.
    User,
    /// Of its user's group.
    Group,
    /// Of strangers.
    Strangers,
    /// Of its address's strangers.
    StrangersOfAddress,
}

/// The connections that there are.
#[derive(Clone, Debug)]
pub struct Doors {
    limits: DoorLimits,
    connections: Gauge,
    strangers: usize,
    of_address: BTreeMap<Arc<str>, OfAddress>,
    of_user: BTreeMap<Arc<str>, usize>,
}

/// The connections of one address.
#[derive(Clone, Copy, Debug, Default)]
struct OfAddress {
    all: usize,
    strangers: usize,
}

impl Doors {
    /// No connection.
    pub fn new(limits: DoorLimits) -> Self {
        let (connections, of_address) = (Gauge::default(), BTreeMap::new());
        Self { limits, connections, strangers: 0, of_address, of_user: BTreeMap::new() }
    }

    /// A stranger's connection comes from an address.
    ///
    /// # Errors
    /// It is one too many, and is not counted.
    pub fn enter(&mut self, address: &Arc<str>) -> Result<(), Full> {
        if self.connections.now() >= self.limits.connections {
            return Err(Full::Hub);
        }
        if self.strangers >= self.limits.strangers {
            return Err(Full::Strangers);
        }
        let OfAddress { all, strangers } = self.of_address.get(address).copied().unwrap_or_default();
        if all >= self.limits.per_address {
            return Err(Full::Address);
        }
        if strangers >= self.limits.strangers_per_address {
            return Err(Full::StrangersOfAddress);
        }
        let counted = OfAddress { all: all + 1, strangers: strangers + 1 };
        self.of_address.insert(Arc::clone(address), counted);
        self.strangers += 1;
        self.connections.raise(1);
        Ok(())
    }

    /// A stranger's connection may run commands from now on.
    pub fn let_in(&mut self, address: &Arc<str>) {
        self.strangers = self.strangers.saturating_sub(1);
        if let Some(of_address) = self.of_address.get_mut(address) {
            of_address.strangers = of_address.strangers.saturating_sub(1);
        }
    }

    /// A connection has logged in, as a user of these.
    ///
    /// # Errors
    /// It is one too many of its user or its group, and is not counted as such.
    pub fn log_in(&mut self, user: &Arc<str>, users: &Users) -> Result<(), Full> {
        let share = users.get(user).map(|user| &user.share);
        let of_user = self.connections_of(user);
        if of_user >= share.and_then(|share| share.connections).unwrap_or(self.limits.per_user) {
            return Err(Full::User);
        }
        if let Some(group) = share.and_then(|share| share.group.as_ref())
            && let Some(most) = group.connections
            && users.of_group(group).map(|other| self.connections_of(other)).sum::<usize>() >= most
        {
            return Err(Full::Group);
        }
        self.of_user.insert(Arc::clone(user), of_user + 1);
        Ok(())
    }

    fn connections_of(&self, user: &str) -> usize {
        self.of_user.get(user).copied().unwrap_or_default()
    }

    /// A connection that had entered has ended; `user` if it had logged in.
    pub fn leave(&mut self, address: &Arc<str>, is_stranger: bool, user: Option<&Arc<str>>) {
        if is_stranger {
            self.let_in(address);
        }
        self.connections.lower(1);
        if let Some(of_address) = self.of_address.get_mut(address) {
            of_address.all = of_address.all.saturating_sub(1);
            if of_address.all == 0 {
                self.of_address.remove(address);
            }
        }
        user.into_iter().for_each(|user| lower(&mut self.of_user, user));
    }

    /// How many strangers there are.
    pub fn strangers(&self) -> usize {
        self.strangers
    }

    /// How many there are, and were.
    pub fn connections(&mut self) -> &mut Gauge {
        &mut self.connections
    }

    /// How many of each user there are.
    pub fn of_users(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.of_user.iter().map(|(user, count)| (user, *count))
    }

    /// Changes the limits. Connections that are open already stay.
    pub fn set_limits(&mut self, limits: DoorLimits) {
        self.limits = limits;
    }
}

fn lower(counts: &mut BTreeMap<Arc<str>, usize>, key: &Arc<str>) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{Group, Rules, Share, User};

    const LIMITS: DoorLimits =
        DoorLimits { connections: 3, per_address: 2, per_user: 1, strangers: 3, strangers_per_address: 2 };

    fn addresses() -> [Arc<str>; 3] {
        ["a".into(), "b".into(), "c".into()]
    }

    #[test]
    fn one_connection_too_many_is_refused_and_the_next_one_has_room_again_x_136() {
        let [a, b, c] = addresses();
        let (mut doors, users) = (Doors::new(LIMITS), Users::open(Rules::default()));

        assert_eq!(
            [&a, &a, &a, &b, &c].map(|it| doors.enter(it)),
            [Ok(()), Ok(()), Err(Full::Address), Ok(()), Err(Full::Hub)]
        );
        assert_eq!([doors.log_in(&a, &users), doors.log_in(&a, &users)], [Ok(()), Err(Full::User)]);
        doors.leave(&a, true, Some(&a));

        assert_eq!((doors.enter(&c), doors.log_in(&a, &users)), (Ok(()), Ok(())));
        assert_eq!((doors.connections().now(), doors.connections().most()), (3, 3));
    }

    #[test]
    fn strangers_leave_room_for_those_who_log_in_x_136() {
        let [a, b, c] = addresses();
        let limits = DoorLimits { connections: 9, per_address: 9, per_user: 9, strangers: 2, strangers_per_address: 1 };
        let mut doors = Doors::new(limits);

        assert_eq!(
            [&a, &a, &b, &c].map(|it| doors.enter(it)),
            [Ok(()), Err(Full::StrangersOfAddress), Ok(()), Err(Full::Strangers)]
        );
        doors.let_in(&a);

        assert_eq!(
            (doors.enter(&a), doors.strangers()),
            (Ok(()), 2),
            "the first one of the address is no stranger now"
        );
        doors.leave(&a, false, None);
        doors.leave(&a, true, None);
        doors.leave(&b, true, None);
        assert_eq!((doors.strangers(), doors.connections().now(), doors.of_address.len()), (0, 0, 0));
    }

    #[test]
    fn a_user_and_a_group_may_have_a_limit_of_their_own_x_136() {
        let [a, b, c] = addresses();
        let group = Arc::new(Group { name: "g".into(), weight: 1, running: None, waiting: None, connections: Some(3) });
        let user = |name: &Arc<str>, connections, group| {
            let share = Share { connections, group, ..Share::default() };
            User {
                name: Arc::clone(name),
                upstream: None,
                rules: Rules::default(),
                share,
                keys: Vec::new(),
                certificate: None,
            }
        };
        let of_group =
            [user(&a, Some(2), Some(Arc::clone(&group))), user(&b, Some(9), Some(group)), user(&c, None, None)];
        let (mut doors, users) = (Doors::new(LIMITS), Users::new(of_group, [0; 32]));

        assert_eq!(
            [&a, &a, &a, &b, &b, &c, &c].map(|it| doors.log_in(it, &users)),
            [Ok(()), Ok(()), Err(Full::User), Ok(()), Err(Full::Group), Ok(()), Err(Full::User),]
        );
    }
}
