//! The end of a cursor in a user's session: in the transaction that made it, and outside of any other.

use std::sync::{Arc, Mutex};

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use cmap_core::options::{ClientOptions, ReadMode, ReadPreference};
use cmap_core::topology::ServerSelector::{self, Writable};
use cmap_runtime::{Client, Consistency, Runtime, Session, SessionCursor};

use super::cursors::{fail, named, open_cursors, sent};
use super::rogue::Rogue;
use super::{ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, builder, options, run};

/// The commands that servers have heard, each with the number of its server.
type Heard = Arc<Mutex<Vec<(usize, RawDocumentBuf)>>>;

fn member() -> LocalServer {
    LocalServer::start_as(Setup { replica_set: true, ..Setup::default() })
}

/// A client that tells of its commands, with three documents on its server.
async fn filled<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    let client = builder::<H>(options(server, query)).observe_commands(true).build().await.unwrap();
    for id in 0..3 {
        client.operation(("db", insert(id))).on(Writable).run().await.unwrap();
    }
    client
}

fn insert(id: i32) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id }] }
}

/// A cursor of the session that its server has not exhausted.
async fn find<R: Runtime>(session: &mut Session<R>, on: impl Into<ServerSelector>) -> SessionCursor<R> {
    session.operation(("db", rawdoc! { "find": "c", "batchSize": 1 })).on(on).cursor().await.unwrap()
}

async fn insert_in<R: Runtime>(session: &mut Session<R>, id: i32) {
    session.operation(("db", insert(id))).on(Writable).run().await.unwrap();
}

async fn count<R: Runtime>(client: &Client<R>) -> i32 {
    client.operation(("db", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap().get_i32("n").unwrap()
}

/// Two members of a set, which note what they hear and have a cursor in each reply. The first is the primary.
fn set_of_two(heard: &Heard) -> (Vec<Rogue>, ClientOptions) {
    let places: Arc<Mutex<Vec<String>>> = Arc::default();
    let member = |own: usize| {
        let (places, heard) = (Arc::clone(&places), Arc::clone(heard));
        Rogue::start(move || {
            let (places, heard) = (Arc::clone(&places), Arc::clone(&heard));
            move |_, command| {
                heard.lock().unwrap().push((own, command.to_owned()));
                let mut reply = rawdoc! {
                    "ok": 1, "isWritablePrimary": own == 0, "secondary": own != 0, "setName": "rs", "setVersion": 1,
                    "maxWireVersion": 25, "logicalSessionTimeoutMinutes": 30,
                    "cursor": { "id": 7_i64, "ns": "db.c", "firstBatch": [] },
                };
                let hosts: RawArrayBuf = places.lock().unwrap().iter().map(String::as_str).collect();
                reply.append(cstr!("hosts"), hosts);
                reply
            }
        })
    };
    let members: Vec<Rogue> = (0..2).map(member).collect();
    *places.lock().unwrap() = members.iter().map(Rogue::place).collect();
    let hosts = places.lock().unwrap().join(",");
    (members, ClientOptions::parse(&format!("mongodb://{hosts}/?replicaSet=rs")).unwrap().0)
}

pub fn a_cursor_from_before_a_transaction_is_closed_outside_of_it<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = filled::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        let cursor = find(&mut session, Writable).await;
        session.start_transaction().unwrap();

        cursor.close(&mut session).await;

        assert_eq!(open_cursors(&client).await, 0);
        insert_in(&mut session, 3).await;
        session.commit_transaction().await.unwrap();
        assert_eq!(count(&client).await, 4);
        assert_nothing_lost(&client);
    });
}

pub fn a_cursor_of_an_earlier_transaction_is_closed_outside_of_the_next_one<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = filled::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        let cursor = find(&mut session, Writable).await;
        session.commit_transaction().await.unwrap();
        session.start_transaction().unwrap();

        cursor.close(&mut session).await;

        insert_in(&mut session, 3).await;
        session.commit_transaction().await.unwrap();
        assert_eq!((open_cursors(&client).await, count(&client).await), (0, 4));
    });
}

pub fn a_cursor_of_the_open_transaction_is_closed_in_it<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = filled::<H>(&server, "directConnection=true").await;
        let mut events = client.subscribe(10_000);
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        let cursor = find(&mut session, Writable).await;

        cursor.close(&mut session).await;

        session.commit_transaction().await.unwrap();
        let sent = sent(&client, &mut events).await;
        let [kill] = named(&sent, "killCursors")[..] else { panic!("{sent:?}") };
        assert!(!kill.get_bool("autocommit").unwrap());
        assert_eq!(kill.get_i64("txnNumber").unwrap(), named(&sent, "find")[0].get_i64("txnNumber").unwrap());
        assert_eq!(open_cursors(&client).await, 0);
    });
}

pub fn a_cursor_on_a_secondary_is_closed_there_during_a_transaction_pin_1<H: Harness>() {
    run::<H>(async {
        let heard = Heard::default();
        let (_members, options) = set_of_two(&heard);
        let client = builder::<H>(options).build().await.unwrap();
        let mut session = client.start_session().unwrap();
        let cursor = find(&mut session, ReadPreference::new(ReadMode::Secondary)).await;
        session.start_transaction().unwrap();
        insert_in(&mut session, 0).await;

        cursor.close(&mut session).await;

        let heard = heard.lock().unwrap();
        let kills: Vec<_> = heard.iter().filter(|(_, command)| command.get_str("killCursors").is_ok()).collect();
        let [(1, kill)] = kills[..] else { panic!("{kills:?}") };
        assert_eq!(kill.get_document("lsid").unwrap(), &*session.id().document());
        assert!(kill.get("txnNumber").unwrap().is_none(), "{kill:?}");
    });
}

pub fn a_cursor_that_is_closed_leaves_a_transaction_its_connection_lb_15<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 2, ..Setup::default() });
        let client = filled::<H>(&server, "loadBalanced=true").await;
        let mut events = client.subscribe(10_000);
        let mut session = client.start_session().unwrap();
        let cursor = find(&mut session, Writable).await;
        session.start_transaction().unwrap();
        insert_in(&mut session, 3).await;
        let of_transaction = session.pinned_connection().unwrap().id();

        cursor.close(&mut session).await;

        assert_eq!(session.pinned_connection().map(|pinned| pinned.id()), Some(of_transaction));
        assert_eq!(client.stats().counts.in_use, 1, "LB-13");
        session.commit_transaction().await.unwrap();
        assert_eq!(named(&sent(&client, &mut events).await, "killCursors").len(), 1);
        drop(session);
        assert_nothing_lost(&client);
    });
}

pub fn nothing_is_sent_for_a_cursor_whose_transaction_has_ended_lb_15<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let client = filled::<H>(&server, "loadBalanced=true").await;
        let mut events = client.subscribe(10_000);
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        let cursor = find(&mut session, Writable).await;
        session.commit_transaction().await.unwrap();

        cursor.close(&mut session).await;

        assert_eq!(named(&sent(&client, &mut events).await, "killCursors").len(), 0);
        assert!(session.is_pinned(), "the commit may be repeated (PIN-6)");
    });
}

pub fn a_commit_may_be_repeated_after_a_cursor_is_closed<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = filled::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        let cursor = find(&mut session, Writable).await;
        session.start_transaction().unwrap();
        insert_in(&mut session, 3).await;
        let late = rawdoc! { "failCommands": ["commitTransaction"], "errorCode": 50 };
        fail(&client, rawdoc! { "times": 1 }, late).await;
        let error = session.commit_transaction().await.unwrap_err();
        assert!(error.has_label("UnknownTransactionCommitResult"), "{error}");

        cursor.close(&mut session).await;

        session.commit_transaction().await.unwrap();
        assert_eq!((open_cursors(&client).await, count(&client).await), (0, 4));
    });
}

pub fn a_cursor_of_a_snapshot_session_that_is_closed_is_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = filled::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session_with(Consistency::Snapshot { at: None }).unwrap();
        let cursor = find(&mut session, Writable).await;
        assert_eq!(open_cursors(&client).await, 1);

        cursor.close(&mut session).await;

        assert_eq!(open_cursors(&client).await, 0);
    });
}
