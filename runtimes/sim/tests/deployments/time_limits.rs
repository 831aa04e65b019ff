//! The prose tests of MongoDB's specification *Client Side Operations Timeout*, by their numbers. 2 and 3 need client-side encryption, 6 and
//! 7 GridFS.

use std::time::Duration;

use cmap_sim::bson::{Document, doc};
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::cmap_core::server::CommandEvent;
use cmap_sim::cmap_core::wire::Limits;
use cmap_sim::{
    Client, CursorOptions, Error, Event, Notice, OperationError, ServerConfig, ServerVersion, Session, Sim,
    Subscription, User,
};

/// How much longer than its limit a call may take: the specification allows five milliseconds.
const TOLERANCE: Duration = Duration::from_millis(5);

/// A simulation whose only server needs no time but for what fail points say.
fn sim(configure: impl FnOnce(&mut ServerConfig)) -> (Sim, cmap_sim::Server) {
    let sim = Sim::new(0);
    sim.set_splits(false);
    sim.set_pace(Duration::from_micros(50)..=Duration::from_micros(50), None);
    let server = sim.server_with("db.example", configure);
    (sim, server)
}

fn replica_set(config: &mut ServerConfig) {
    *config = config.clone().with_version(ServerVersion::V8_0);
    config.replica_set = Some("rs".into());
}

fn with_user(config: &mut ServerConfig) {
    config.authorization = true;
    config.users = vec![User::with_password("app", "secret")];
}

async fn connect(uri: &str) -> Client {
    let (options, _) = ClientOptions::parse(uri).unwrap();
    Client::builder(options).observe_commands(true).build().await.unwrap()
}

/// A client with these options, and a document in `db.coll`.
async fn client(query: &str) -> Client {
    let internal = connect("mongodb://db.example/?directConnection=true").await;
    internal.run(("db", doc! { "insert": "coll", "documents": [{ "x": 1 }] })).await.unwrap();
    connect(&format!("mongodb://db.example/?directConnection=true&{query}")).await
}

/// Sets a fail point that blocks: by a client of its own, which has no limit.
async fn block(login: &str, mode: Document, mut data: Document, millis: i32) {
    data.extend(doc! { "blockConnection": true, "blockTimeMS": millis });
    let fail_point = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    let internal = connect(&format!("mongodb://{login}db.example/?directConnection=true")).await;
    internal.run(("admin", fail_point)).await.unwrap();
}

/// The names of the commands that were sent, but for those of fail points, and whether each failed.
fn sent(events: &mut Subscription) -> Vec<(String, bool)> {
    let mut sent = Vec::new();
    while let Some(notice) = events.try_next() {
        let Notice::Event { event: Event::Command(event), .. } = notice else { continue };
        if !matches!(&*event, CommandEvent::CommandStarted { .. }) {
            sent.push((event.sent().name.clone(), matches!(&*event, CommandEvent::CommandFailed { .. })));
        }
    }
    sent
}

fn ended(name: &str) -> (String, bool) {
    (name.to_owned(), false)
}

fn failed(name: &str) -> (String, bool) {
    (name.to_owned(), true)
}

/// The error of a call whose time is up after `limit`.
async fn times_out<T>(
    sim: &Sim,
    limit: Duration,
    call: impl Future<Output = Result<T, OperationError>>,
) -> OperationError {
    let began = sim.elapsed();
    let Err(error) = call.await else { panic!("it has succeeded") };
    let took = sim.elapsed() - began;
    assert!(error.is_timeout(), "{error}");
    assert!(limit <= took && took <= limit + TOLERANCE, "{took:?}");
    error
}

#[test]
fn prose_1_the_batches_of_a_write_share_one_limit_csot_29() {
    let (sim, _server) = sim(|_| {});
    sim.run(async {
        let client = client("timeoutMS=2000").await;
        block("", doc! { "times": 2 }, doc! { "failCommands": ["insert"] }, 1010).await;
        let mut events = client.subscribe(100);
        let documents = (0..50).map(|_| doc! { "a": "b".repeat(1024 * 1024) });

        let insert = client.operation(("db", doc! { "insert": "coll" })).sequence("documents", documents).run();
        times_out(&sim, Duration::from_secs(2), insert).await;

        assert_eq!(sent(&mut events), [ended("insert"), failed("insert")]);
    });
}

#[test]
fn prose_4_1_the_limit_holds_for_each_command_of_a_background_handshake_csot_13() {
    let (sim, _server) = sim(with_user);
    sim.run(async {
        let data = doc! { "failCommands": ["saslContinue"], "appName": "timeoutBackgroundPoolTest" };
        block("app:secret@", doc! { "times": 1 }, data, 15).await;

        let names =
            pool_events("minPoolSize=1&timeoutMS=10&appName=timeoutBackgroundPoolTest", "ConnectionClosed").await;

        assert!(names.contains(&"ConnectionCreated"), "{names:?}");
        assert!(!names.contains(&"ConnectionReady"), "{names:?}");
    });
}

#[test]
fn prose_4_2_each_command_of_a_background_handshake_has_the_whole_limit_csot_13() {
    let (sim, _server) = sim(with_user);
    sim.run(async {
        let commands = ["hello", "isMaster", "saslContinue"];
        let data = doc! { "failCommands": commands.to_vec(), "appName": "refreshTimeoutBackgroundPoolTest" };
        block("app:secret@", doc! { "times": 100 }, data, 15).await;

        let query = "minPoolSize=1&timeoutMS=20&appName=refreshTimeoutBackgroundPoolTest";
        let names = pool_events(query, "ConnectionReady").await;

        assert!(names.contains(&"ConnectionCreated"), "{names:?}");
        assert!(!names.contains(&"ConnectionClosed"), "{names:?}");
    });
}

/// The events of the pool of a client with a user and these options, up to the first of the name `last`.
async fn pool_events(query: &str, last: &str) -> Vec<&'static str> {
    let client = connect(&format!("mongodb://app:secret@db.example/?directConnection=true&{query}")).await;
    let mut events = client.subscribe(100);
    let mut names = Vec::new();
    while let Some(notice) = events.next().await {
        let Notice::Event { event: Event::Pool(event), .. } = notice else { continue };
        names.push(event.name());
        if event.name() == last {
            break;
        }
    }
    names
}

/// The times are a hundred times those of the specification: in less than 30 ms no getMore is sent that waits for data, since it would be
/// cut off, and its connection with it.
#[test]
fn prose_5_1_an_iteration_of_a_tailable_cursor_times_out_csot_22() {
    let (sim, _server) = sim(|_| {});
    sim.run(async {
        let client = client("timeoutMS=2000").await;
        client.run(("db", doc! { "create": "capped", "capped": true, "size": 4096 })).await.unwrap();
        client.run(("db", doc! { "insert": "capped", "documents": [{ "x": 1 }] })).await.unwrap();
        block("", doc! { "times": 2 }, doc! { "failCommands": ["getMore"] }, 1500).await;
        let mut events = client.subscribe(100);
        let mut options = CursorOptions::default();
        options.max_await_time = Some(Duration::from_millis(1));

        let find = doc! { "find": "capped", "tailable": true, "awaitData": true };
        let mut cursor = client.operation(("db", find)).cursor_with(options).await.unwrap();
        cursor.try_next().await.unwrap().unwrap();
        times_out(&sim, Duration::from_secs(2), async { cursor.try_next().await.map(|_| ()) }).await;

        assert_eq!(sent(&mut events), [ended("find"), ended("getMore"), failed("getMore")]);
    });
}

/// With times as above.
#[test]
fn prose_5_2_an_iteration_of_a_change_stream_times_out_csot_24() {
    let (sim, _server) = sim(replica_set);
    sim.run(async {
        let client = client("timeoutMS=2000").await;
        block("", doc! { "times": 2 }, doc! { "failCommands": ["getMore"] }, 1500).await;
        let mut events = client.subscribe(100);
        let mut options = CursorOptions::default();
        options.max_await_time = Some(Duration::from_millis(1));

        let watch = doc! { "aggregate": "coll", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
        let mut stream = client.operation(("db", watch)).watch_with(options).await.unwrap();
        times_out(&sim, Duration::from_secs(2), async { stream.try_next().await.map(|_| ()) }).await;

        assert_eq!(sent(&mut events), [ended("aggregate"), ended("getMore"), failed("getMore")]);
    });
}

/// How long a ping takes to fail whose server is not there.
fn selection_fails_after(query: &str, limit: Duration) {
    let (sim, _server) = sim(|_| {});
    sim.run(async {
        let client = connect(&format!("mongodb://invalid/?{query}")).await;

        times_out(&sim, limit, client.run(("admin", doc! { "ping": 1 }))).await;
    });
}

#[test]
fn prose_8_1_to_8_4_a_selection_ends_by_the_shorter_of_both_limits_csot_4() {
    let ten = Duration::from_millis(10);
    selection_fails_after("serverSelectionTimeoutMS=10", ten);
    selection_fails_after("timeoutMS=10&serverSelectionTimeoutMS=20", ten);
    selection_fails_after("timeoutMS=20&serverSelectionTimeoutMS=10", ten);
    selection_fails_after("timeoutMS=0&serverSelectionTimeoutMS=10", ten);
}

#[test]
fn prose_8_5_and_8_6_a_handshake_ends_by_the_shorter_of_both_limits_csot_6() {
    for query in ["timeoutMS=10&serverSelectionTimeoutMS=20", "timeoutMS=20&serverSelectionTimeoutMS=10"] {
        let (sim, _server) = sim(with_user);
        sim.run(async {
            let login = "app:secret@";
            block(login, doc! { "times": 1 }, doc! { "failCommands": ["saslContinue"] }, 15).await;
            let client = connect(&format!("mongodb://{login}db.example/?directConnection=true&{query}")).await;

            let insert = client.run(("db", doc! { "insert": "coll", "documents": [{ "x": 1 }] }));
            times_out(&sim, Duration::from_millis(10), insert).await;
        });
    }
}

/// Ends a session with an open transaction by `end`, while the server takes 300 ms for an abort. It has no error.
fn end_of_session(
    query: &str,
    options: cmap_sim::SessionOptions,
    end: impl AsyncFnOnce(&mut Session) -> Result<(), OperationError>,
) {
    let (sim, _server) = sim(replica_set);
    sim.run(async {
        let client = client(query).await;
        block("", doc! { "times": 1 }, doc! { "failCommands": ["abortTransaction"] }, 300).await;
        let mut session = client.start_session_with(options).unwrap();
        session.start_transaction().unwrap();
        session.run(("db", doc! { "insert": "coll", "documents": [{ "x": 1 }] })).await.unwrap();
        let (mut events, began) = (client.subscribe(100), sim.elapsed());

        end(&mut session).await.unwrap();

        let (took, limit) = (sim.elapsed() - began, Duration::from_millis(200));
        assert!(limit <= took && took <= limit + TOLERANCE, "{took:?}");
        assert_eq!(sent(&mut events), [failed("abortTransaction")]);
    });
}

#[test]
fn prose_9_1_the_end_of_a_session_has_the_client_s_limit_csot_26() {
    end_of_session("timeoutMS=200", Default::default(), async |session| session.abort_transaction().await);
}

#[test]
fn prose_9_2_the_end_of_a_session_has_the_session_s_limit_csot_26() {
    let mut options = cmap_sim::SessionOptions::default();
    options.timeout = Some(Duration::from_millis(200));
    end_of_session("", options, async |session| session.abort_transaction().await);
}

#[test]
fn prose_9_3_the_end_of_a_session_has_a_limit_of_its_own_csot_26() {
    end_of_session("", Default::default(), async |session| {
        session.abort_transaction_within(Duration::from_millis(200)).await
    });
}

#[test]
fn prose_10_the_abort_after_a_failed_callback_has_the_limit_anew_csot_28() {
    let (sim, _server) = sim(replica_set);
    sim.run(async {
        let client = client("timeoutMS=200").await;
        block("", doc! { "times": 2 }, doc! { "failCommands": ["insert", "abortTransaction"] }, 300).await;
        let (mut events, began) = (client.subscribe(100), sim.elapsed());
        let mut session = client.start_session().unwrap();

        let insert = async |session: &mut Session| {
            session.run(("db", doc! { "insert": "coll", "documents": [{ "x": 1 }] })).await?;
            Ok::<(), Error>(())
        };
        let error = session.with_transaction(insert).await.unwrap_err();

        assert!(error.is_timeout(), "{error}");
        let (took, limits) = (sim.elapsed() - began, Duration::from_millis(400));
        assert!(limits <= took && took <= limits + TOLERANCE, "{took:?}");
        assert_eq!(sent(&mut events), [failed("insert"), failed("abortTransaction")]);
    });
}

#[test]
fn prose_11_the_batches_of_a_bulk_write_share_one_limit_csot_29() {
    let (sim, _server) = sim(replica_set);
    sim.run(async {
        let client = client("timeoutMS=2000").await;
        block("", doc! { "times": 2 }, doc! { "failCommands": ["bulkWrite"] }, 1010).await;
        let mut events = client.subscribe(100);
        let (message, document) = (Limits::DEFAULT.max_message_size, Limits::DEFAULT.max_document_size);
        let text = "b".repeat(document as usize - 500);
        let ops = (0..=message / document).map(|_| doc! { "insert": 0, "document": { "a": &text } });

        let write = client.operation(("admin", doc! { "bulkWrite": 1 }));
        let write = write.sequence("ops", ops).sequence("nsInfo", [doc! { "ns": "db.coll" }]).run();
        times_out(&sim, Duration::from_secs(2), write).await;

        assert_eq!(sent(&mut events), [ended("bulkWrite"), failed("bulkWrite")]);
    });
}
