//! How many connections there may be: of all clients, of one address, of one user.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gauge::Gauge;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Of all clients.
    pub connections: usize,
    /// Of one address.
    pub per_address: usize,
    /// Of one user.
    pub per_user: usize,
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
}

/// The connections that there are.
#[derive(Clone, Debug)]
pub struct Doors {
    limits: DoorLimits,
    connections: Gauge,
    of_address: BTreeMap<Arc<str>, usize>,
    of_user: BTreeMap<Arc<str>, usize>,
}

impl Doors {
    /// No connection.
    pub fn new(limits: DoorLimits) -> Self {
        Self { limits, connections: Gauge::default(), of_address: BTreeMap::new(), of_user: BTreeMap::new() }
    }

    /// A connection comes from an address.
    ///
    /// # Errors
    /// It is one too many, and is not counted.
    pub fn enter(&mut self, address: &Arc<str>) -> Result<(), Full> {
        if self.connections.now() >= self.limits.connections {
            return Err(Full::Hub);
        }
        let of_address = self.of_address.entry(Arc::clone(address)).or_default();
        if *of_address >= self.limits.per_address {
            return Err(Full::Address);
        }
        *of_address += 1;
        self.connections.raise(1);
        Ok(())
    }

    /// A connection has logged in.
    ///
    /// # Errors
    /// It is one too many of its user, and is not counted as such.
    pub fn log_in(&mut self, user: &Arc<str>) -> Result<(), Full> {
        let of_user = self.of_user.entry(Arc::clone(user)).or_default();
        if *of_user >= self.limits.per_user {
            return Err(Full::User);
        }
        *of_user += 1;
        Ok(())
    }

    /// A connection that had entered has ended; `user` if it had logged in.
    pub fn leave(&mut self, address: &Arc<str>, user: Option<&Arc<str>>) {
        self.connections.lower(1);
        lower(&mut self.of_address, address);
        user.into_iter().for_each(|user| lower(&mut self.of_user, user));
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

    #[test]
    fn one_connection_too_many_is_refused_and_the_next_one_has_room_again_x_136() {
        let [a, b, c]: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
        let mut doors = Doors::new(DoorLimits { connections: 3, per_address: 2, per_user: 1 });

        assert_eq!(
            [&a, &a, &a, &b, &c].map(|it| doors.enter(it)),
            [Ok(()), Ok(()), Err(Full::Address), Ok(()), Err(Full::Hub)]
        );
        assert_eq!([doors.log_in(&a), doors.log_in(&a)], [Ok(()), Err(Full::User)]);
        doors.leave(&a, Some(&a));

        assert_eq!((doors.enter(&c), doors.log_in(&a)), (Ok(()), Ok(())));
        assert_eq!((doors.connections().now(), doors.connections().most()), (3, 3));
    }
}
