//! An application's parked sockets: whose they are, which one is taken, and who is turned away.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{BootId, Lot, LotOptions, NotParked, Refusal, SocketId, Taken, TurnedAway};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;
const BOOT: BootId = BootId { started: 1000, random: 1 };

fn member() -> ServerAddress {
    ServerAddress::tcp("db1.example", 27017)
}

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

fn lot() -> Lot {
    let mut options = LotOptions::default();
    (options.max_greeting, options.max_parked, options.max_failures) = (3, 2, 2);
    Lot::new(options)
}

/// Accepts a socket and parks it.
fn park(lot: &mut Lot, socket: u64, boot: BootId) -> Result<Vec<SocketId>, Refusal> {
    lot.accept(NOW, address(1)).unwrap();
    lot.park(NOW, SocketId(socket), address(1), member(), boot)
}

#[test]
fn the_socket_that_was_parked_last_is_taken_first() {
    let mut lot = lot();
    park(&mut lot, 1, BOOT).unwrap();
    park(&mut lot, 2, BOOT).unwrap();

    assert_eq!(lot.take(&member(), 1), Some(Taken { socket: SocketId(2), demand: 0 }));
    assert_eq!(lot.take(&member(), 1), Some(Taken { socket: SocketId(1), demand: 0 }));
    assert_eq!(lot.take(&member(), 1), None);
    assert_eq!(lot.greeting(), 0);
}

#[test]
fn those_who_wait_beyond_what_is_there_and_what_replaces_it_are_demanded() {
    let mut lot = lot();
    park(&mut lot, 1, BOOT).unwrap();
    park(&mut lot, 2, BOOT).unwrap();

    // One for this, one that is parked, and one that takes the place of the first.
    assert_eq!(lot.take(&member(), 10).unwrap().demand, 7);
}

#[test]
fn a_later_run_of_an_agent_replaces_the_earlier_one_x_119() {
    let mut lot = lot();
    park(&mut lot, 1, BOOT).unwrap();
    let later = BootId { started: 2000, random: 0 };

    assert_eq!(park(&mut lot, 2, later), Ok(vec![SocketId(1)]));
    assert_eq!(park(&mut lot, 3, BOOT), Err(Refusal::Superseded));
    assert_eq!(lot.take(&member(), 1).unwrap().socket, SocketId(2));
    assert!(!lot.remove(&member(), SocketId(1)));
}

#[test]
fn a_member_has_no_more_than_its_share() {
    let mut lot = lot();
    park(&mut lot, 1, BOOT).unwrap();
    park(&mut lot, 2, BOOT).unwrap();

    assert_eq!(park(&mut lot, 3, BOOT), Err(Refusal::Full));
    assert!(lot.remove(&member(), SocketId(1)));
    assert_eq!(park(&mut lot, 4, BOOT), Ok(Vec::new()));
    assert_eq!(lot.members().map(|(_, parked)| parked).collect::<Vec<_>>(), [2]);
}

#[test]
fn ten_thousand_that_say_nothing_cost_no_more_than_a_few() {
    let mut lot = lot();

    let accepted = (0..10_000).filter(|_| lot.accept(NOW, address(9)).is_ok()).count();

    assert_eq!((accepted, lot.greeting()), (2, 2), "half of all, from one address");
    let from = TurnedAway::TooManyGreetingFrom { address: address(9), number: 2 };
    assert_eq!(lot.accept(NOW, address(9)), Err(from));
    assert_eq!(lot.accept(NOW, address(8)), Ok(()));
    assert_eq!(lot.accept(NOW, address(1)), Err(TurnedAway::TooManyGreeting(3)));
    lot.end_greeting(NOW, address(9), NotParked::Left);
    assert_eq!(lot.accept(NOW, address(1)), Ok(()));
}

#[test]
fn members_without_end_cost_a_bounded_memory() {
    let mut options = LotOptions::default();
    options.max_parked_in_all = 2;
    let mut lot = Lot::new(options);
    let mut parked = 0;

    for number in 0..5_000 {
        lot.accept(NOW, address(1)).unwrap();
        let member = ServerAddress::tcp("db1.example", number);
        match lot.park(NOW, SocketId(number.into()), address(1), member, BOOT) {
            Ok(_) => parked += 1,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Full);
                lot.end_greeting(NOW, address(1), NotParked::Left);
            }
        }
    }

    assert_eq!((parked, lot.greeting()), (2, 0));
    assert!(lot.members().count() <= 1024);
    assert_eq!(lot.members().map(|(_, parked)| parked).sum::<usize>(), 2);
}

#[test]
fn an_address_that_fails_again_and_again_is_left_alone_for_a_minute() {
    let mut lot = lot();
    for _ in 0..2 {
        lot.accept(NOW, address(9)).unwrap();
        lot.end_greeting(NOW, address(9), NotParked::Failed);
    }

    assert_eq!(lot.accept(NOW, address(9)), Err(TurnedAway::TooManyFailures { address: address(9), number: 2 }));
    assert_eq!(lot.accept(NOW, address(8)), Ok(()));
    assert_eq!(lot.accept(NOW + Duration::from_secs(60), address(9)), Ok(()));
}

#[test]
fn addresses_without_end_are_forgotten() {
    let mut lot = lot();

    for number in 0..20_000_u32 {
        let address = IpAddr::V4(Ipv4Addr::from(number));
        lot.accept(NOW, address).unwrap();
        lot.end_greeting(NOW, address, NotParked::Failed);
    }

    assert_eq!(format!("{lot:?}").matches("number: 1").count(), 4096);
}
