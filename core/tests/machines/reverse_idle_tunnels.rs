//! An application's parked sockets: whose they are, which one is taken, and who is turned away.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{BootId, IdleTunnelOptions, IdleTunnels, NotParked, Refusal, SocketId, Taken, TurnedAway};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;
const BOOT: BootId = BootId { started: 1000, random: 1 };

fn member() -> ServerAddress {
    ServerAddress::tcp("db1.example", 27017)
}

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

fn tunnels() -> IdleTunnels {
    let mut options = IdleTunnelOptions::default();
    (options.max_greeting, options.max_parked, options.max_failures) = (3, 2, 2);
    IdleTunnels::new(options, 1)
}

/// Accepts a socket and parks it.
fn park(tunnels: &mut IdleTunnels, socket: u64, boot: BootId) -> Result<Vec<SocketId>, Refusal> {
    tunnels.accept(NOW, SocketId(socket), address(1)).unwrap();
    tunnels.park(NOW, SocketId(socket), address(1), member(), boot)
}

#[test]
fn the_socket_that_was_parked_last_is_taken_first() {
    let mut tunnels = tunnels();
    park(&mut tunnels, 1, BOOT).unwrap();
    park(&mut tunnels, 2, BOOT).unwrap();

    assert_eq!(tunnels.take(NOW, &member(), 1), Some(Taken { socket: SocketId(2), demand: 0 }));
    assert_eq!(tunnels.take(NOW, &member(), 1), Some(Taken { socket: SocketId(1), demand: 0 }));
    assert_eq!(tunnels.take(NOW, &member(), 1), None);
    assert_eq!(tunnels.greeting(), 0);
}

#[test]
fn those_who_wait_beyond_what_is_there_and_what_replaces_it_are_demanded() {
    let mut tunnels = tunnels();
    park(&mut tunnels, 1, BOOT).unwrap();
    park(&mut tunnels, 2, BOOT).unwrap();

    // One for this, one that is parked, and one that takes the place of the first.
    assert_eq!(tunnels.take(NOW, &member(), 10).unwrap().demand, 7);
}

#[test]
fn a_later_run_of_an_agent_replaces_the_earlier_one_x_119() {
    let mut tunnels = tunnels();
    park(&mut tunnels, 1, BOOT).unwrap();
    let later = BootId { started: 2000, random: 0 };

    assert_eq!(park(&mut tunnels, 2, later), Ok(vec![SocketId(1)]));
    assert_eq!(park(&mut tunnels, 3, BOOT), Err(Refusal::Superseded));
    assert_eq!(tunnels.take(NOW, &member(), 1).unwrap().socket, SocketId(2));
    assert!(!tunnels.remove(NOW, &member(), SocketId(1)));
}

#[test]
fn a_member_has_no_more_than_its_share() {
    let mut tunnels = tunnels();
    park(&mut tunnels, 1, BOOT).unwrap();
    park(&mut tunnels, 2, BOOT).unwrap();

    assert_eq!(park(&mut tunnels, 3, BOOT), Err(Refusal::Full));
    assert!(tunnels.remove(NOW, &member(), SocketId(1)));
    assert_eq!(park(&mut tunnels, 4, BOOT), Ok(Vec::new()));
    assert_eq!(tunnels.members().map(|(_, parked)| parked).collect::<Vec<_>>(), [2]);
}

#[test]
fn ten_thousand_that_say_nothing_cost_no_more_than_a_few() {
    let mut tunnels = tunnels();

    let accepted = (0..10_000).filter(|nth| tunnels.accept(NOW, SocketId(*nth), address(9)).is_ok()).count();

    assert_eq!((accepted, tunnels.greeting()), (2, 2), "half of all, from one address");
    let from = TurnedAway::TooManyGreetingFrom { address: address(9), number: 2 };
    let mut accept = |socket, last| tunnels.accept(NOW, SocketId(socket), address(last));
    assert_eq!(accept(10_000, 9), Err(from));
    assert_eq!(accept(10_001, 8), Ok(None));
    assert_eq!(accept(10_002, 1), Err(TurnedAway::TooManyGreeting(3)));
    tunnels.end_greeting(NOW, SocketId(0), address(9), NotParked::Left);
    assert_eq!(tunnels.accept(NOW, SocketId(10_003), address(1)), Ok(None));
}

#[test]
fn members_without_end_cost_a_bounded_memory() {
    let mut options = IdleTunnelOptions::default();
    options.max_parked_in_all = 2;
    let mut tunnels = IdleTunnels::new(options, 4);
    let mut parked = 0;

    for number in 0..5_000 {
        tunnels.accept(NOW, SocketId(number.into()), address(1)).unwrap();
        let member = ServerAddress::tcp("db1.example", number);
        match tunnels.park(NOW, SocketId(number.into()), address(1), member, BOOT) {
            Ok(_) => parked += 1,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Full);
                tunnels.end_greeting(NOW, SocketId(number.into()), address(1), NotParked::Left);
            }
        }
    }

    assert_eq!((parked, tunnels.greeting()), (2, 0));
    assert!(tunnels.members().count() <= 1024);
    assert_eq!(tunnels.members().map(|(_, parked)| parked).sum::<usize>(), 2);
}

/// A lot with four places, all taken by members of one agent; two of the sockets are of the first of them.
fn full() -> IdleTunnels {
    let mut options = IdleTunnelOptions::default();
    options.max_parked_in_all = 4;
    let mut tunnels = IdleTunnels::new(options, 2);
    for (socket, port) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
        park_at_port(&mut tunnels, socket, port).unwrap();
    }
    tunnels
}

fn park_at_port(tunnels: &mut IdleTunnels, socket: u64, port: u16) -> Result<Vec<SocketId>, Refusal> {
    tunnels.accept(NOW, SocketId(socket), address(1)).unwrap();
    let parked = tunnels.park(NOW, SocketId(socket), address(1), ServerAddress::tcp("db1.example", port), BOOT);
    if parked.is_err() {
        tunnels.end_greeting(NOW, SocketId(socket), address(1), NotParked::Left);
    }
    parked
}

#[test]
fn many_members_of_one_agent_leave_room_for_one_that_a_client_asks_for_x_120() {
    let mut tunnels = full();
    assert_eq!(park(&mut tunnels, 5, BOOT), Err(Refusal::Full));
    tunnels.end_greeting(NOW, SocketId(5), address(1), NotParked::Left);

    tunnels.ask_for(NOW, &member());

    assert_eq!(park(&mut tunnels, 6, BOOT), Ok(vec![SocketId(1)]), "the oldest of the one that has the most");
    assert_eq!(park(&mut tunnels, 7, BOOT).unwrap().len(), 1);
    assert_eq!(park(&mut tunnels, 8, BOOT), Err(Refusal::Full), "two are wanted of each");
    assert_eq!(tunnels.members().map(|(_, parked)| parked).sum::<usize>(), 4);
}

#[test]
fn members_that_clients_ask_for_keep_their_due_x_120() {
    let mut tunnels = full();
    for port in [1, 2, 3] {
        tunnels.ask_for(NOW, &ServerAddress::tcp("db1.example", port));
    }
    tunnels.ask_for(NOW, &member());

    assert_eq!(park(&mut tunnels, 5, BOOT), Err(Refusal::Full), "none has more than two");
}

#[test]
fn more_members_than_are_remembered_leave_room_for_one_that_a_client_asks_for_x_120() {
    let mut tunnels = IdleTunnels::new(IdleTunnelOptions::default(), 4);
    for port in 1..=1024 {
        park_at_port(&mut tunnels, port.into(), port).unwrap();
    }
    assert_eq!(park_at_port(&mut tunnels, 2000, 2000), Err(Refusal::Full));

    tunnels.ask_for(NOW, &member());

    assert_eq!(park(&mut tunnels, 3000, BOOT).unwrap().len(), 1);
    assert_eq!(tunnels.members().count(), 1024);
}

#[test]
fn a_run_from_the_future_is_forgotten_a_minute_after_its_last_socket_x_119() {
    let mut tunnels = tunnels();
    let from_the_future = BootId { started: u64::MAX, random: 0 };
    park(&mut tunnels, 1, from_the_future).unwrap();
    let ended = NOW + Duration::from_secs(10);
    assert!(tunnels.remove(ended, &member(), SocketId(1)));

    let mut park_at = |now| tunnels.park(now, SocketId(2), address(1), member(), BOOT);

    assert_eq!(park_at(ended + Duration::from_secs(59)), Err(Refusal::Superseded));
    assert_eq!(park_at(ended + Duration::from_secs(60)), Ok(Vec::new()));
}

#[test]
fn an_address_whose_socket_is_parked_has_failed_in_vain_no_longer_x_120() {
    let mut tunnels = tunnels();
    let fail = |tunnels: &mut IdleTunnels| {
        tunnels.accept(NOW, SocketId(9), address(1)).unwrap();
        tunnels.end_greeting(NOW, SocketId(9), address(1), NotParked::Refused);
    };
    fail(&mut tunnels);

    park(&mut tunnels, 1, BOOT).unwrap();
    fail(&mut tunnels);

    assert_eq!(tunnels.accept(NOW, SocketId(2), address(1)), Ok(None));
    tunnels.end_greeting(NOW, SocketId(2), address(1), NotParked::Refused);
    let failed = TurnedAway::TooManyFailures { address: address(1), number: 2 };
    assert_eq!(tunnels.accept(NOW, SocketId(3), address(1)), Err(failed));
    assert_eq!(tunnels.accept(NOW + Duration::from_secs(60), SocketId(4), address(1)), Ok(None));
}

#[test]
fn an_address_that_fails_again_and_again_is_left_alone_for_a_minute() {
    let mut tunnels = tunnels();
    for socket in [1, 2].map(SocketId) {
        tunnels.accept(NOW, socket, address(9)).unwrap();
        tunnels.end_greeting(NOW, socket, address(9), NotParked::Refused);
    }

    let failed = TurnedAway::TooManyFailures { address: address(9), number: 2 };
    assert_eq!(tunnels.accept(NOW, SocketId(3), address(9)), Err(failed));
    assert_eq!(tunnels.accept(NOW, SocketId(4), address(8)), Ok(None));
    assert_eq!(tunnels.accept(NOW + Duration::from_secs(60), SocketId(5), address(9)), Ok(None));
}

/// A socket that connects and hangs up; whether it was let in.
fn hang_up(tunnels: &mut IdleTunnels, now: Instant, last: u8) -> bool {
    let socket = SocketId(100);
    let is_let_in = tunnels.accept(now, socket, address(last)).is_ok();
    if is_let_in {
        tunnels.end_greeting(now, socket, address(last), NotParked::Unheard);
    }
    is_let_in
}

#[test]
fn a_socket_that_ends_before_its_hello_costs_a_tenth_of_a_wrong_token_x_120() {
    let mut tunnels = tunnels();

    let let_in = (0..50).filter(|_| hang_up(&mut tunnels, NOW, 9)).count();

    assert_eq!(let_in, 20, "two wrong tokens are allowed");
    let failed = TurnedAway::TooManyFailures { address: address(9), number: 20 };
    assert_eq!(tunnels.accept(NOW, SocketId(1), address(9)), Err(failed));
}

#[test]
fn sockets_without_a_hello_keep_out_no_agent_of_their_address_x_120() {
    let mut tunnels = tunnels();
    park(&mut tunnels, 1, BOOT).unwrap();
    let almost_a_day = NOW + Duration::from_secs(24 * 60 * 60 - 1);

    assert!((0..10_000).all(|_| hang_up(&mut tunnels, almost_a_day, 1)));
    for socket in [2, 3].map(SocketId) {
        tunnels.accept(almost_a_day, socket, address(1)).unwrap();
        tunnels.end_greeting(almost_a_day, socket, address(1), NotParked::Refused);
    }

    assert!(tunnels.accept(almost_a_day, SocketId(4), address(1)).is_err(), "wrong tokens count all the same");
    let later = NOW + Duration::from_secs(25 * 60 * 60);
    assert!((0..50).any(|_| !hang_up(&mut tunnels, later, 1)), "an agent that is gone is forgotten");
}

#[test]
fn sockets_that_say_nothing_give_way_to_an_agent_of_their_address_x_120() {
    let mut tunnels = tunnels();
    park(&mut tunnels, 1, BOOT).unwrap();
    let mut accept = |socket| tunnels.accept(NOW, SocketId(socket), address(1));
    assert_eq!((accept(2), accept(3)), (Ok(None), Ok(None)));

    assert_eq!(accept(4), Ok(Some(SocketId(2))), "the oldest of the two that are allowed");
    tunnels.end_greeting(NOW, SocketId(2), address(1), NotParked::Left);
    assert_eq!(tunnels.greeting(), 2);
    assert_eq!(tunnels.park(NOW, SocketId(4), address(1), member(), BOOT), Ok(Vec::new()));

    assert_eq!(tunnels.greeting(), 1);
}

#[test]
fn addresses_of_agents_without_end_are_forgotten() {
    let mut tunnels = IdleTunnels::new(IdleTunnelOptions::default(), 1);

    for number in 0..5_000_u32 {
        let address = IpAddr::V4(Ipv4Addr::from(number));
        tunnels.accept(NOW, SocketId(1), address).unwrap();
        tunnels.park(NOW, SocketId(1), address, member(), BOOT).unwrap();
        tunnels.remove(NOW, &member(), SocketId(1));
    }

    assert_eq!(format!("{tunnels:?}").matches("0.0.").count(), 4096);
}

#[test]
fn addresses_without_end_are_forgotten() {
    let mut tunnels = tunnels();

    for number in 0..20_000_u32 {
        let address = IpAddr::V4(Ipv4Addr::from(number));
        tunnels.accept(NOW, SocketId(1), address).unwrap();
        tunnels.end_greeting(NOW, SocketId(1), address, NotParked::Refused);
    }

    assert_eq!(format!("{tunnels:?}").matches("number: 1").count(), 4096);
}
