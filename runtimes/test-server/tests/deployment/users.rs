//! Users, who are known to every member.

use bson::rawdoc;

use super::network::Network;

#[test]
fn a_user_that_the_primary_makes_is_known_to_all() {
    let mut network = Network::of_three();
    let create = rawdoc! { "createUser": "ada", "pwd": "secret", "roles": ["root"] };

    network.admin(0, &create);

    let known = network.admin(1, &rawdoc! { "usersInfo": "ada" });
    assert_eq!(known.get_array("users").unwrap().into_iter().count(), 1);
}

#[test]
fn a_secondary_makes_no_users() {
    let mut network = Network::of_three();
    let client = network.connect(1);

    let create = rawdoc! { "createUser": "ada", "pwd": "secret", "roles": ["root"] };

    assert_eq!(network.fail(client, "admin", &create).code, Some(10107));
}
