//! The servers of a topology: those that belong to it, and those that left and whose last connections are still in use.
//!
//! Handles and check-outs name the slot of their server, so that none is searched.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::waiting::Origins;
use crate::address::ServerAddress;
use crate::pool::Pool;
use crate::server::{Server, ServerId};

/// The servers by their slots.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
pub(super) struct Servers<C> {
    slots: Vec<Option<Place<C>>>,
    last_number: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
struct Place<C> {
    id: ServerId,
    server: Server<C>,
    origins: Origins,
}

impl<C> Servers<C> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), last_number: 0 }
    }

    /// The id of the next server.
    pub(super) fn next_id(&self) -> ServerId {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        ServerId::new(self.last_number.wrapping_add(1), u32::try_from(slot).unwrap_or(u32::MAX))
    }

    /// Adds a server under its [`next_id`](Self::next_id).
    pub(super) fn add(&mut self, id: ServerId, server: Server<C>) {
        self.last_number = id.number();
        let place = Some(Place { id, server, origins: Origins::default() });
        match self.slots.get_mut(id.slot() as usize) {
            Some(slot) => *slot = place,
            None => self.slots.push(place),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: ServerId) -> Option<&Server<C>> {
        self.place(id.slot()).filter(|place| place.id == id).map(|place| &place.server)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ServerId) -> Option<&mut Server<C>> {
        self.with_origins(id).map(|(server, _)| server)
    }

    /// The pool of a server.
    pub(super) fn pool(&self, id: ServerId) -> Option<&Pool<C>> {
        self.get(id).map(|server| &server.pool)
    }

    /// The pool of a server, to call.
    #[inline]
    pub(super) fn pool_mut(&mut self, id: ServerId) -> Option<&mut Pool<C>> {
        self.get_mut(id).map(|server| &mut server.pool)
    }

    /// The check-outs that wait in a server's pool.
    pub(super) fn origins(&mut self, id: ServerId) -> Option<&mut Origins> {
        self.with_origins(id).map(|(_, origins)| origins)
    }

    /// A server, and the check-outs that wait in its pool.
    #[inline]
    pub(super) fn with_origins(&mut self, id: ServerId) -> Option<(&mut Server<C>, &mut Origins)> {
        let place = self.place_mut(id.slot()).filter(|place| place.id == id);
        place.map(|place| (&mut place.server, &mut place.origins))
    }

    /// The server that is kept in `slot`. Its pool knows which handles are its own.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Server<C>> {
        self.place_mut(slot).map(|place| &mut place.server)
    }

    /// The server that is kept in `slot`, to read.
    #[inline]
    pub(super) fn peek(&self, slot: u32) -> Option<&Server<C>> {
        self.place(slot).map(|place| &place.server)
    }

    /// The id of the server that is kept in `slot`.
    pub(super) fn id_at(&self, slot: u32) -> Option<ServerId> {
        self.place(slot).map(|place| place.id)
    }

    #[inline]
    fn place(&self, slot: u32) -> Option<&Place<C>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[inline]
    fn place_mut(&mut self, slot: u32) -> Option<&mut Place<C>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Forgets a server.
    pub(super) fn remove(&mut self, id: ServerId) {
        if let Some(slot) = self.slots.get_mut(id.slot() as usize) {
            slot.take_if(|place| place.id == id);
        }
    }

    /// A copy without the sockets.
    pub(super) fn snapshot(&self) -> Servers<()> {
        let place =
            |place: &Place<C>| Place { id: place.id, server: place.server.snapshot(), origins: place.origins.clone() };
        Servers {
            slots: self.slots.iter().map(|slot| slot.as_ref().map(place)).collect(),
            last_number: self.last_number,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ServerId, &Server<C>)> {
        self.slots.iter().flatten().map(|place| (place.id, &place.server))
    }

    /// The servers without the pools of identities.
    pub(super) fn members(&self) -> impl Iterator<Item = (ServerId, &Server<C>)> {
        self.iter().filter(|(_, server)| server.of_identity.is_none())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ServerId, &mut Server<C>)> {
        self.slots.iter_mut().flatten().map(|place| (place.id, &mut place.server))
    }

    /// The servers that have not left.
    pub(super) fn present(&self) -> impl Iterator<Item = (ServerId, &Server<C>)> {
        self.members().filter(|(_, server)| !server.has_left())
    }

    /// The servers that have not left, by their addresses.
    pub(super) fn by_address(&self) -> BTreeMap<&ServerAddress, ServerId> {
        self.present().map(|(id, server)| (&*server.description.address, id)).collect()
    }

    /// The server at `address` that has not left.
    pub(super) fn find(&self, address: &ServerAddress) -> Option<ServerId> {
        self.present().find(|(_, server)| *server.description.address == *address).map(|(id, _)| id)
    }
}
