//! Logging in, by every mechanism, with right and wrong credentials.

use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use cmap_core::connection::auth::{Authentication, First, MAX_ITERATIONS, Nonce, Opening, Reply, Step};
use cmap_core::connection::{Fault, Phase};
use cmap_core::options::{Credential, Mechanism};
use cmap_core::wire::Flags;
use cmap_test_server::{Peer, User};

use super::network::{Client, Network, PASSWORD, USER, anonymous, config, login, message};

const SUBJECT: &str = "CN=client,OU=cmap,O=cmap";

fn locked() -> Network {
    let mut config = config();
    config.authorization = true;
    config.users.push(User::Certificate { subject: SUBJECT.into() });
    Network::new(config)
}

fn logins(network: &mut Network, client: &mut Client) -> Vec<String> {
    let status = network.admin(client, &rawdoc! { "connectionStatus": 1 });
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    let name = |user: &bson::RawDocument| format!("{}.{}", user.get_str("db").unwrap(), user.get_str("user").unwrap());
    users.into_iter().map(|user| name(user.unwrap().as_document().unwrap())).collect()
}

#[test]
fn every_password_mechanism_logs_in() {
    let mut network = locked();
    for (mechanism, source) in [
        (None, "admin"),
        (Some(Mechanism::ScramSha1), "admin"),
        (Some(Mechanism::ScramSha256), "admin"),
        (Some(Mechanism::Plain), "$external"),
    ] {
        let mut client = network.establish(&login(mechanism, USER, PASSWORD, source)).unwrap();

        assert_eq!(logins(&mut network, &mut client), [format!("{source}.{USER}")], "{mechanism:?}");
        network.admin(&mut client, &rawdoc! { "getCmdLineOpts": 1 });
    }
}

#[test]
fn a_wrong_password_and_an_unknown_user_get_the_same_error() {
    let mut network = locked();
    for (mechanism, source) in
        [(None, "admin"), (Some(Mechanism::ScramSha1), "admin"), (Some(Mechanism::Plain), "$external")]
    {
        let wrong = network.establish(&login(mechanism, USER, "wrong", source)).unwrap_err();
        let unknown = network.establish(&login(mechanism, "nobody", PASSWORD, source)).unwrap_err();

        assert_eq!((wrong.phase, &wrong.fault), (Phase::Authenticate, &Fault::Server { code: Some(18) }));
        // Each names its user, whom the client knows; what the server said is the same.
        let unknown = unknown.to_string().replace("\"nobody\"", &format!("\"{USER}\""));
        assert_eq!(wrong.to_string(), unknown, "{mechanism:?}");
    }
}

#[test]
fn a_password_that_saslprep_changes_is_the_one_it_becomes() {
    let mut network = Network::new(config());
    let mut admin = network.connect();
    let create = rawdoc! { "createUser": "roman", "pwd": "\u{2168}", "roles": [], "mechanisms": ["SCRAM-SHA-256"] };
    network.admin(&mut admin, &create);

    for password in ["\u{2168}", "IX", "I\u{ad}X"] {
        assert!(network.establish(&login(None, "roman", password, "admin")).is_ok(), "{password:?}");
    }
    assert!(network.establish(&login(None, "roman", "XI", "admin")).is_err());
}

#[test]
fn a_user_of_one_mechanism_cannot_use_the_other() {
    let mut network = Network::new(config());
    let mut admin = network.connect();
    let create = rawdoc! { "createUser": "old", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"] };
    network.admin(&mut admin, &create);

    assert!(network.establish(&login(None, "old", "x", "admin")).is_ok(), "negotiation finds it (AUTH-7)");
    assert!(network.establish(&login(Some(Mechanism::ScramSha1), "old", "x", "admin")).is_ok());
    assert!(network.establish(&login(Some(Mechanism::ScramSha256), "old", "x", "admin")).is_err());
}

#[test]
fn a_certificate_logs_in_who_it_names() {
    let mut network = locked();
    let mut options = anonymous();
    let mut credential = Credential::new("", "".into(), "$external");
    (credential.username, credential.password) = (None, None);
    credential.mechanism = Some(Mechanism::MongoDbX509);
    options.credential = Some(credential.into());
    let peer = || Peer::at("127.0.0.1:50000");

    let mut client = network.establish_as(peer().with_certificate(SUBJECT), &options).unwrap();

    assert_eq!(logins(&mut network, &mut client), [format!("$external.{SUBJECT}")]);
    for stranger in [peer(), peer().with_certificate("CN=stranger")] {
        let error = network.establish_as(stranger, &options).unwrap_err();
        assert_eq!(error.fault, Fault::Server { code: Some(18) });
    }
}

#[test]
fn an_access_token_logs_in_whom_it_is_for_oidc_7() {
    let mut config = config();
    config.authorization = true;
    config.users.push(User::with_token("robot", "abcd1234"));
    let mut network = Network::new(config);
    let mut options = anonymous();
    options.credential = Some(Credential::oidc(None).into());
    options.token = Some("abcd1234".into());

    let mut client = network.establish(&options).unwrap();

    assert_eq!(logins(&mut network, &mut client), ["$external.robot"]);
    let wrong = rawdoc! { "saslStart": 1, "mechanism": "MONGODB-OIDC", "payload": payload("abcd") };
    let mut stranger = network.connect();
    assert_eq!(network.fail(&mut stranger, "$external", &wrong).code, Some(18));
}

#[test]
fn an_accepted_speculation_saves_a_command_and_a_malformed_one_is_ignored_srv_6() {
    let mut network = locked();
    let fields = [
        (
            rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "db": "admin", "payload": payload("n,,n=user,r=abc") },
            true,
        ),
        (
            rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "db": "admin", "payload": payload("nonsense") },
            false,
        ),
        (
            rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "db": "admin", "payload": payload("n,,n=nobody,r=abc") },
            false,
        ),
        (rawdoc! { "saslStart": 1, "mechanism": 7 }, false),
        (rawdoc! { "other": 1 }, false),
        (rawdoc! {}, false),
    ];
    for (speculation, is_answered) in fields {
        let client = network.accept();
        let hello = rawdoc! { "hello": 1, "speculativeAuthenticate": speculation.clone() };
        network.send(client, &message(1, Flags::NONE, "admin", &hello));

        let reply = network.receive_messages(client).remove(0).body;
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
        assert_eq!(reply.get("speculativeAuthenticate").unwrap().is_some(), is_answered, "{speculation:?}");
    }
}

#[test]
fn an_empty_proof_is_refused_and_ends_the_conversation() {
    let mut network = locked();
    let mut client = network.connect();
    let start = rawdoc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload("n,,n=user,r=abc") };
    assert!(!network.admin(&mut client, &start).get_bool("done").unwrap());

    let error = network.fail(&mut client, "admin", &continuation(b""));
    let again = network.fail(&mut client, "admin", &continuation(b""));

    assert_eq!((error.code, again.code), (Some(18), Some(17)));
}

#[test]
fn a_client_that_does_not_skip_the_empty_exchange_logs_in_by_it_auth_15() {
    for mechanism in [Mechanism::ScramSha1, Mechanism::ScramSha256] {
        let mut network = locked();
        let mut client = network.connect();
        let credential = Credential::new(USER, PASSWORD.into(), "admin").with_mechanism(mechanism);
        let nonce = Nonce::from_random([1; Nonce::RANDOM_BYTES]);
        let authentication = Authentication::new(Arc::new(credential), nonce, MAX_ITERATIONS).unwrap();
        let Ok(Opening::Start(mut conversation)) = authentication.handle_hello(None::<[&str; 0]>, None) else {
            panic!()
        };
        let First::SaslStart { payload: first, .. } = conversation.first() else { panic!() };
        let start = rawdoc! { "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first.as_bytes()) };

        let challenge = network.admin(&mut client, &start);
        let challenge = Reply::new(challenge.get_binary("payload").unwrap().bytes, false);
        let Ok(Step::Derive(request)) = conversation.handle_reply(challenge) else { panic!() };
        let Ok(Step::Send(proof)) = conversation.handle_keys(&request.run()) else { panic!() };
        let verified = network.admin(&mut client, &continuation(proof.as_bytes()));
        assert!(!verified.get_bool("done").unwrap());
        assert!(logins(&mut network, &mut client).is_empty(), "not yet");
        let ended = network.admin(&mut client, &continuation(b""));

        assert!(ended.get_bool("done").unwrap());
        assert_eq!(logins(&mut network, &mut client), [format!("admin.{USER}")], "{mechanism:?}");
        let signature = Reply::new(verified.get_binary("payload").unwrap().bytes, true);
        assert!(matches!(conversation.handle_reply(signature), Ok(Step::Done)));
    }
}

#[test]
fn a_challenge_asks_for_the_iterations_of_its_mechanism() {
    let mut config = config();
    config.iterations = (5000, 6000);
    config.users = vec![User::with_password(USER, PASSWORD)];
    let mut network = Network::new(config);
    for (mechanism, iterations) in [("SCRAM-SHA-1", ",i=5000"), ("SCRAM-SHA-256", ",i=6000")] {
        let mut client = network.connect();
        let start = rawdoc! { "saslStart": 1, "mechanism": mechanism, "payload": payload("n,,n=user,r=abc") };

        let challenge = network.admin(&mut client, &start);

        let challenge = challenge.get_binary("payload").unwrap().bytes.to_vec();
        assert!(challenge.ends_with(iterations.as_bytes()), "{}", String::from_utf8_lossy(&challenge));
    }
}

#[test]
fn authorization_lets_only_the_first_commands_through() {
    let mut network = locked();
    let mut client = network.connect();

    for command in ["ping", "buildInfo", "connectionStatus", "logout"] {
        let mut body = RawDocumentBuf::new();
        body.append(<&bson::raw::CStr>::try_from(command).unwrap(), 1);
        network.admin(&mut client, &body);
    }
    for command in [rawdoc! { "find": "c" }, rawdoc! { "getCmdLineOpts": 1 }, rawdoc! { "usersInfo": 1 }] {
        let error = network.fail(&mut client, "admin", &command);
        assert_eq!((error.code, error.code_name.as_deref()), (Some(13), Some("Unauthorized")));
        assert!(error.message.ends_with("requires authentication"), "{}", error.message);
    }
}

#[test]
fn a_role_opens_the_data_of_its_database_alone() {
    let mut network = locked();
    let mut admin = network.establish(&login(None, USER, PASSWORD, "admin")).unwrap();
    network.run(&mut admin, "one", &rawdoc! { "createUser": "u", "pwd": "x", "roles": ["readWrite"] });
    let mut client = network.establish(&login(None, "u", "x", "one")).unwrap();

    assert_eq!(network.run(&mut client, "one", &rawdoc! { "find": "c" }).get_f64("ok").unwrap(), 1.0);
    assert_eq!(network.fail(&mut client, "two", &rawdoc! { "find": "c" }).code, Some(13));
    assert_eq!(network.run(&mut admin, "two", &rawdoc! { "find": "c" }).get_f64("ok").unwrap(), 1.0);
}

#[test]
fn an_operator_does_everything_without_a_login() {
    let mut network = locked();
    let mut operator = network.establish_as(Peer::operator(), &anonymous()).unwrap();

    let reply = network.run(&mut operator, "db", &rawdoc! { "insert": "c", "documents": [{}] });
    assert_eq!(reply.get_i32("n").unwrap(), 1);
}

#[test]
fn who_logs_out_has_to_log_in_again() {
    let mut network = locked();
    let mut client = network.establish(&login(None, USER, PASSWORD, "admin")).unwrap();

    network.admin(&mut client, &rawdoc! { "logout": 1 });

    assert_eq!(network.fail(&mut client, "admin", &rawdoc! { "usersInfo": 1 }).code, Some(13));
}

fn payload(text: &str) -> bson::Binary {
    binary(text.as_bytes())
}

fn binary(bytes: &[u8]) -> bson::Binary {
    bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: bytes.to_vec() }
}

fn continuation(payload: &[u8]) -> RawDocumentBuf {
    rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": binary(payload) }
}
