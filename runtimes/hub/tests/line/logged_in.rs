//! A user who has logged in.

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, rawdoc};
use cmap_hub::users::{self, Users};

use super::{Client, Hub, at, code, sasl_start};

/// The keys of the password `secret`, and the proof of it where the hub's nonce is the tests'.
const KEYS: &str = "SCRAM-SHA-256$4096:AAECAwQFBgcICQoLDA0ODw==$THoPhoTAuqyoQsK4dUHncUzgfD8fdmhsgKZhWVqNP5U=:7YiHMMi2OcXGRogub03Ek06JRZ9bkhTOdCzHa5iPLiQ=";
const PROOF: &str = "c=biws,r=nonceCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ,p=t01Brm3268E//Fa3BbOojR7yZIzK4SX46/rA/TcF+gA=";

/// A hub with one user, of whom these are further lines of the users file.
fn hub_of(name: &str, lines: &str) -> Hub {
    Hub::of(users_of(name, lines))
}

fn users_of(name: &str, lines: &str) -> Users {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.toml");
    std::fs::write(&path, format!("[[user]]\nname = '{name}'\nscram-sha-256 = '{KEYS}'\n{lines}")).unwrap();
    Users::new(users::read(&path).unwrap(), [7; 32])
}

fn go_on(payload: &str) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.into() };
    rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": payload }
}

/// A client that has logged in as `app`.
fn logged_in(hub: &mut Hub) -> Client {
    let mut client = Client::greeted(hub);
    for message in [sasl_start("app"), go_on(PROOF), go_on("")] {
        let done = client.say(hub, at(0), "admin", &message);
        assert_eq!(code(&done), None, "{done:?}");
    }
    assert_eq!(client.line.user().map(|user| &**user), Some("app"));
    client
}

#[test]
fn a_command_runs_upstream_as_the_user_for_whom_the_rules_have_allowed_it_x_133() {
    let mut hub = hub_of("app", "upstream = 'writer'");
    let mut client = logged_in(&mut hub);
    let upstream = |forward: &cmap_hub::protocol::Forward| forward.upstream.as_deref().map(str::to_owned);
    for server in ["a", "b"] {
        let done = client.say(&mut hub, at(0), "d", &rawdoc! { "find": "c" });
        assert_eq!(upstream(&done.runs[0]).as_deref(), Some("writer"));
        let id = i64::from(server.as_bytes()[0]);
        let cursor = rawdoc! { "ok": 1, "cursor": { "id": id, "ns": "d.c", "firstBatch": [] } };
        client.reply_from(&mut hub, &super::server_named(server), &cursor);
    }
    let mut done = client.say(&mut hub, at(0), "d", &rawdoc! { "killCursors": "c", "cursors": [97_i64, 98_i64] });

    hub.users = users_of("other", "");
    let ok: RawDocumentBuf = rawdoc! { "ok": 1, "cursorsKilled": [] };
    let first = upstream(&done.runs[0]);
    done = client.reply_from(&mut hub, &super::server_named("b"), &ok);

    assert_eq!([first, upstream(&done.runs[0])].map(|it| it.unwrap()), ["writer", "writer"]);
}

#[test]
fn a_login_that_was_begun_with_keys_of_before_a_reload_fails() {
    for users in [users_of("other", ""), users_of("app", "upstream = 'writer'")] {
        let mut hub = hub_of("app", "");
        let mut client = Client::greeted(&mut hub);
        for message in [sasl_start("app"), go_on(PROOF)] {
            assert_eq!(code(&client.say(&mut hub, at(0), "admin", &message)), None);
        }

        hub.users = users;

        assert_eq!(code(&client.say(&mut hub, at(0), "admin", &go_on(""))), Some(18));
        assert_eq!(client.line.user(), None);
    }
}
