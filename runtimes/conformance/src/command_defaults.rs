//! What the options of a client add to its commands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::server::ServerType;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{CommandErrorKind, OperationErrorKind};

use super::rogue::Rogue;
use super::{Harness, run};

/// The commands that a server has heard.
type Heard = Arc<Mutex<Vec<RawDocumentBuf>>>;

/// A primary that notes what it hears, and finds everything good.
fn primary(heard: &Heard) -> Rogue {
    let heard = Arc::clone(heard);
    Rogue::start(move || {
        let hears = Arc::clone(&heard);
        move |_, command| {
            hears.lock().unwrap().push(command.to_owned());
            rawdoc! { "ok": 1, "isWritablePrimary": true, "setName": "rs", "minWireVersion": 0, "maxWireVersion": 25 }
        }
    })
}

pub fn concerns_and_preference_of_the_options_go_along_with_commands_x_64<H: Harness>() {
    run::<H>(async {
        let heard = Heard::default();
        let rogue = primary(&heard);
        let mut options = rogue.options(
            "w=5&journal=true&readConcernLevel=majority&readPreference=secondary&replicaSet=rs&directConnection=true",
        );
        options.credential = None;
        let client = super::builder::<H>(options).build().await.unwrap();
        let mut connection = client.check_out().await.unwrap();

        for command in [
            rawdoc! { "insert": "c" },
            rawdoc! { "find": "c" },
            rawdoc! { "find": "c", "readConcern": { "level": "local" } },
            rawdoc! { "ping": 1 },
        ] {
            connection.run_command("db", command).await.unwrap();
        }

        let of_user = |command: &RawDocumentBuf| command.get_str("$db").is_ok_and(|database| database == "db");
        let heard: Vec<_> = heard.lock().unwrap().iter().filter(|command| of_user(command)).cloned().collect();
        let secondary = rawdoc! { "mode": "secondary" };
        let expected = [
            rawdoc! { "insert": "c", "$db": "db", "writeConcern": { "w": 5, "j": true } },
            rawdoc! {
                "find": "c", "$db": "db", "readConcern": { "level": "majority" }, "$readPreference": secondary.clone(),
            },
            rawdoc! { "find": "c", "readConcern": { "level": "local" }, "$db": "db", "$readPreference": secondary },
            rawdoc! { "ping": 1, "$db": "db" },
        ];
        assert_eq!(heard, expected);
    });
}

pub fn a_limit_of_the_callers_own_replaces_w_timeout_ms_csot_3<H: Harness>() {
    run::<H>(async {
        let heard = Heard::default();
        let rogue = primary(&heard);
        let mut options = rogue.options("w=5&wTimeoutMS=50&directConnection=true");
        options.credential = None;
        let client = super::builder::<H>(options).build().await.unwrap();
        let (insert, limit) = (rawdoc! { "insert": "c" }, Duration::from_secs(10));

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("db", &*insert).await.unwrap();
        connection.run_command_within("db", &*insert, limit).await.unwrap();
        drop(connection);
        client.operation(("db", &*insert)).on(Writable).within(limit).run().await.unwrap();

        let concern = |command: &RawDocumentBuf| command.get_document("writeConcern").ok().map(ToOwned::to_owned);
        let concerns: Vec<_> = heard.lock().unwrap().iter().filter_map(concern).collect();
        let without = rawdoc! { "w": 5 };
        assert_eq!(concerns, [rawdoc! { "w": 5, "wtimeout": 50_i64 }, without.clone(), without]);
    });
}

pub fn a_command_for_users_fails_by_its_write_concern_rwc_8<H: Harness>() {
    run::<H>(async {
        let rogue = Rogue::start(|| {
            |_: &str, command: &RawDocument| {
                let mut reply =
                    rawdoc! { "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 25 };
                if command.get_str("$db").is_ok_and(|database| database == "db") {
                    let error = rawdoc! { "code": 64, "errmsg": "waiting for replication timed out" };
                    reply.append(cstr!("writeConcernError"), error);
                }
                reply
            }
        });
        let mut options = rogue.options("w=5&directConnection=true");
        options.credential = None;
        let client = super::builder::<H>(options).build().await.unwrap();

        for command in [
            rawdoc! { "createUser": "u" },
            rawdoc! { "updateUser": "u" },
            rawdoc! { "dropUser": "u" },
            rawdoc! { "createRole": "r" },
        ] {
            let error = client.run(("db", &*command)).await.unwrap_err();

            let OperationErrorKind::Command(of_command) = &error.kind else { panic!("{error}") };
            assert!(matches!(of_command.kind, CommandErrorKind::Writes(_)), "{command:?}: {error}");
            assert_eq!(error.retries, 0, "{error}");
        }
        client.run(("db", rawdoc! { "ping": 1 })).await.unwrap();
    });
}

pub fn a_read_asks_as_it_was_asked_though_the_server_is_unknown_by_now_sel_34<H: Harness>() {
    run::<H>(async {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (hears, is_down) = (Arc::clone(&heard), Arc::new(AtomicBool::new(false)));
        let rogue = Rogue::start(move || {
            let (hears, is_down) = (Arc::clone(&hears), Arc::clone(&is_down));
            move |name, command| {
                hears.lock().unwrap().push(command.to_owned());
                if name == "insert" {
                    is_down.store(true, Ordering::SeqCst);
                }
                if is_down.load(Ordering::SeqCst) && name != "find" {
                    return rawdoc! { "ok": 0, "code": 11602, "errmsg": "interrupted by a step-down" };
                }
                rawdoc! { "ok": 1, "secondary": true, "setName": "rs", "minWireVersion": 0, "maxWireVersion": 25 }
            }
        });
        let mut options = rogue.options("directConnection=true&readPreference=secondary");
        options.credential = None;
        let client = super::builder::<H>(options).build().await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        let mut other = client.check_out().await.unwrap();
        other.run_command("db", rawdoc! { "insert": "c" }).await.unwrap_err();
        assert_eq!(client.description().servers[0].server_type, ServerType::Unknown);

        connection.run_command("db", rawdoc! { "find": "c" }).await.unwrap();

        let secondary = rawdoc! { "mode": "secondary" };
        let expected = rawdoc! { "find": "c", "$db": "db", "$readPreference": secondary };
        assert_eq!(heard.lock().unwrap().iter().find(|command| command.get_str("find").is_ok()), Some(&expected));
    });
}
