//! Elections after members were killed.

use core::time::Duration;

use bson::rawdoc;
use cmap_test_server::MemberRole;

use super::network::{Network, insert, member, set};

const ELECTION_TIMEOUT: Duration = Duration::from_millis(500);

#[test]
fn a_primary_that_is_killed_is_replaced_after_the_election_timeout() {
    let mut network = Network::of_three();
    let before = network.hello(0).get_object_id("electionId").unwrap();

    network.kill(0);

    network.pass(ELECTION_TIMEOUT - Duration::from_millis(1));
    assert_eq!(network.primary(), None);
    network.pass(Duration::from_millis(1));
    assert_eq!(network.primary(), Some(1));
    let hello = network.hello(1);
    assert!(hello.get_bool("isWritablePrimary").unwrap());
    assert!(hello.get_object_id("electionId").unwrap() > before);
}

#[test]
fn a_member_that_is_killed_hangs_up_and_answers_nothing() {
    let mut network = Network::of_three();
    let client = network.connect(1);

    network.kill(1);

    assert!(network.has_hung_up_on(client));
    assert_eq!(network.listening, [(1, None)]);
    network.start(client, "admin", &rawdoc! { "ping": 1 });
    assert!(network.finish(client).is_none());
    let late = network.connect(1);
    assert!(network.has_hung_up_on(late));
}

#[test]
fn a_primary_without_a_majority_steps_down() {
    let mut network = Network::of_three();
    let client = network.connect(0);

    network.kill(1);
    network.kill(2);
    assert_eq!(network.primary(), Some(0), "it has not noticed yet");
    network.pass(ELECTION_TIMEOUT);

    assert_eq!(network.primary(), None);
    assert_eq!(network.fail(client, "db", &insert(1)).code, Some(10107));
    network.pass(Duration::from_secs(60));
    assert_eq!(network.primary(), None);
}

#[test]
fn a_majority_that_is_back_elects() {
    let mut network = Network::of_three();
    network.kill(1);
    network.kill(2);
    network.pass(Duration::from_secs(10));

    network.restart(1);
    network.pass(ELECTION_TIMEOUT);

    assert_eq!(network.primary(), Some(0));
}

#[test]
fn a_secondary_that_is_killed_costs_no_election() {
    let mut network = Network::of_three();
    let before = network.hello(0).get_object_id("electionId").unwrap();

    network.kill(2);
    network.pass(Duration::from_secs(60));

    assert_eq!(network.hello(0).get_object_id("electionId").unwrap(), before);
}

#[test]
fn the_member_with_the_greatest_priority_is_elected_and_never_one_that_is_not_electable() {
    let mut network = Network::new(set([
        member(0),
        member(1).with_role(MemberRole::Passive),
        member(2).with_role(MemberRole::Hidden),
        member(3),
        member(4).with_role(MemberRole::Electable { priority: 0.5 }),
    ]));
    network.kill(0);
    network.pass(ELECTION_TIMEOUT);
    assert_eq!(network.primary(), Some(3));

    network.kill(3);
    network.pass(ELECTION_TIMEOUT);
    assert_eq!(network.primary(), Some(4));
}

#[test]
fn an_arbiter_votes() {
    let mut network = Network::new(set([member(0), member(1), member(2).with_role(MemberRole::Arbiter)]));

    network.kill(0);
    network.pass(ELECTION_TIMEOUT);

    assert_eq!(network.primary(), Some(1));
}

#[test]
fn the_member_that_has_the_most_is_elected() {
    let mut network = Network::of_three();
    network.set_lag(1, Duration::from_secs(60));
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.kill(0);
    network.pass(ELECTION_TIMEOUT);

    assert_eq!(network.primary(), Some(2));
    assert_eq!(network.count(2), 1);
}

#[test]
fn a_member_can_be_asked_to_become_the_primary() {
    let mut network = Network::of_three();

    network.admin(2, &rawdoc! { "replSetStepUp": 1 });

    assert_eq!(network.primary(), Some(2));
    assert!(network.hello(0).get_bool("secondary").unwrap());
}

#[test]
fn an_election_timeout_is_an_option() {
    let mut config = set((0..3).map(member));
    config.election_timeout = Duration::from_secs(10);
    let mut network = Network::new(config);

    network.kill(0);
    network.pass(Duration::from_secs(9));

    assert_eq!(network.primary(), None);
    network.pass(Duration::from_secs(1));
    assert_eq!(network.primary(), Some(1));
}
