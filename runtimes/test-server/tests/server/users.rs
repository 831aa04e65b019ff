//! Making, showing, changing and dropping users.

use bson::rawdoc;

use super::network::{Network, config, login};

#[test]
fn a_user_is_made_shown_changed_and_dropped() {
    let mut network = Network::new(config());
    let mut admin = network.connect();

    network.run(&mut admin, "db", &rawdoc! { "createUser": "u", "pwd": "one", "roles": ["readWrite"] });
    let info = network.run(&mut admin, "db", &rawdoc! { "usersInfo": "u" });
    let user = info.get_array("users").unwrap().get_document(0).unwrap();
    assert_eq!(user.get_str("_id").unwrap(), "db.u");
    assert_eq!(user.get_array("mechanisms").unwrap().into_iter().count(), 2);
    let role = user.get_array("roles").unwrap().get_document(0).unwrap();
    assert_eq!(role, &*rawdoc! { "role": "readWrite", "db": "db" });
    assert!(network.establish(&login(None, "u", "one", "db")).is_ok());

    network.run(&mut admin, "db", &rawdoc! { "updateUser": "u", "pwd": "two" });
    assert!(network.establish(&login(None, "u", "one", "db")).is_err());
    assert!(network.establish(&login(None, "u", "two", "db")).is_ok());

    network.run(&mut admin, "db", &rawdoc! { "dropUser": "u" });
    assert!(network.establish(&login(None, "u", "two", "db")).is_err());
    assert_eq!(network.fail(&mut admin, "db", &rawdoc! { "dropUser": "u" }).code, Some(11));
}

#[test]
fn all_users_of_a_database_are_dropped_and_no_others() {
    let mut network = Network::new(config());
    let mut admin = network.connect();
    for name in ["a", "b"] {
        network.run(&mut admin, "db", &rawdoc! { "createUser": name, "pwd": "x", "roles": [] });
    }

    let reply = network.run(&mut admin, "db", &rawdoc! { "dropAllUsersFromDatabase": 1 });

    assert_eq!(reply.get_i32("n").unwrap(), 2);
    let info = network.admin(&mut admin, &rawdoc! { "usersInfo": { "forAllDBs": true } });
    assert_eq!(info.get_array("users").unwrap().into_iter().count(), 2, "the one from the beginning, twice");
}

#[test]
fn what_makes_no_user_is_refused() {
    let mut network = Network::new(config());
    let mut admin = network.connect();
    for (command, code) in [
        (rawdoc! { "createUser": "user", "pwd": "x", "roles": [] }, 51003),
        (rawdoc! { "createUser": "", "pwd": "x", "roles": [] }, 2),
        (rawdoc! { "createUser": 1, "pwd": "x", "roles": [] }, 14),
        (rawdoc! { "createUser": "u", "roles": [] }, 2),
        (rawdoc! { "createUser": "u", "pwd": "x" }, 2),
        (rawdoc! { "createUser": "u", "pwd": "x", "roles": [], "mechanisms": ["PLAIN"] }, 2),
        (rawdoc! { "createUser": "u", "pwd": "a\u{7}", "roles": [], "mechanisms": ["SCRAM-SHA-256"] }, 2),
    ] {
        assert_eq!(network.fail(&mut admin, "admin", &command).code, Some(code), "{command:?}");
    }
}
