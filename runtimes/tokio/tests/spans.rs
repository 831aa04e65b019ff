//! Spans of the crate `tracing`: operations, their commands and transactions by OpenTelemetry's names, and check-outs that wait.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::env;
use std::fmt::Debug;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_conformance::{LocalServer, Setup};
use cmap_tokio::bson::{Document, doc};
use cmap_tokio::{Client, ClientOptions, SpanOptions};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Metadata, Subscriber, info_span};

async fn client(server: &LocalServer, options: SpanOptions) -> Client {
    Client::builder(ClientOptions::parse(&server.uri("")).unwrap().0).spans(options).build().await.unwrap()
}

async fn fail_once(client: &Client, data: Document) {
    let fail_point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
    client.run(("admin", fail_point)).await.unwrap();
}

#[tokio::test]
async fn an_operation_and_its_commands_have_spans_within_that_of_their_caller_otel_2_otel_5() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let client = client(&server, SpanOptions::on()).await;

    let request = async {
        client.run(("shop", doc! { "count": "orders" })).await.unwrap();
        client.run(("shop", doc! { "noSuchCommand": 1 })).await.unwrap_err();
    };
    request.instrument(info_span!(target: "cmap::test", "request")).await;

    assert_eq!(
        listener.paths(),
        [
            "request",
            "request > count shop.orders",
            "request > count shop.orders > count",
            "request > noSuchCommand shop",
            "request > noSuchCommand shop > noSuchCommand",
        ]
    );
    let [_, operation, command, failed, refused] = &listener.spans()[..] else { unreachable!() };
    assert_eq!((operation.get("otel.kind"), operation.get("otel.status_code")), (Some("client"), None));
    assert_eq!(command.get("db.query.summary"), Some("count shop.orders"));
    let address = format!("{}:{}", command.get("server.address").unwrap(), command.get("server.port").unwrap());
    assert!(server.uri("").contains(&address), "{address}");
    assert!(command.get("db.mongodb.lsid").unwrap().contains("$binary"), "{command:?}");
    assert_eq!(command.get("db.query.text"), None);
    assert_eq!(refused.get("db.response.status_code"), Some("59"));
    for span in [failed, refused] {
        assert_eq!(span.get("otel.status_code"), Some("ERROR"));
        assert!(span.get("exception.message").unwrap().contains("noSuchCommand"), "{span:?}");
        assert!(span.get("exception.type").unwrap().starts_with("cmap_runtime::"), "{span:?}");
    }
}

#[tokio::test]
async fn the_steps_of_a_cursor_are_operations_and_its_end_is_none_x_188() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let client = client(&server, SpanOptions::on()).await;
    let documents = [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }];
    client.operation(("shop", doc! { "insert": "orders" })).sequence("documents", documents).run().await.unwrap();

    let find = doc! { "find": "orders", "batchSize": 1 };
    let mut cursor = client.operation(("shop", find)).cursor().await.unwrap();
    cursor.try_next().await.unwrap();
    cursor.try_next().await.unwrap();
    cursor.close().await;
    client.close(Duration::from_secs(1)).await.unwrap();

    assert_eq!(
        listener.paths(),
        [
            "insert shop.orders",
            "insert shop.orders > insert",
            "find shop.orders",
            "find shop.orders > find",
            "getMore shop.orders",
            "getMore shop.orders > getMore",
        ]
    );
    let [.., find, _, get_more] = &listener.spans()[..] else { unreachable!() };
    assert_eq!(find.get("db.mongodb.cursor_id"), get_more.get("db.mongodb.cursor_id"));
    assert!(find.get("db.mongodb.cursor_id").is_some());
}

#[tokio::test]
async fn a_transaction_has_a_span_around_its_operations_until_it_is_committed_otel_9() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start_as(Setup { replica_set: true, ..Setup::default() });
    let client = client(&server, SpanOptions::on()).await;
    let mut session = client.start_session().unwrap();
    let insert = |id: i32| ("shop", doc! { "insert": "orders", "documents": [{ "_id": id }] });

    session.start_transaction().unwrap();
    session.run(insert(1)).await.unwrap();
    session.commit_transaction().await.unwrap();
    session.run(insert(2)).await.unwrap();
    session.start_transaction().unwrap();
    session.abort_transaction().await.unwrap();

    assert_eq!(
        listener.paths(),
        [
            "transaction",
            "transaction > insert shop.orders",
            "transaction > insert shop.orders > insert",
            "transaction > commitTransaction admin",
            "transaction > commitTransaction admin > commitTransaction",
            "insert shop.orders",
            "insert shop.orders > insert",
            "transaction",
        ]
    );
    let open = listener.open();
    assert!(open.is_empty(), "{open:?}");
}

#[tokio::test]
async fn an_operation_that_is_given_up_says_so() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let client = client(&server, SpanOptions::on()).await;
    fail_once(&client, doc! { "failCommands": ["count"], "blockConnection": true, "blockTimeMS": 5000 }).await;

    let count = client.run(("shop", doc! { "count": "orders" }));
    tokio::time::timeout(Duration::from_millis(200), count).await.unwrap_err();

    let [.., operation, command] = &listener.spans()[..] else { panic!("{:?}", listener.spans()) };
    for span in [operation, command] {
        assert_eq!(span.get("otel.status_code"), Some("ERROR"));
        assert_eq!(span.get("otel.status_description"), Some("its caller gave it up"));
    }
}

#[tokio::test]
async fn a_command_that_may_hold_a_secret_has_no_span_otel_5() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let mut options = SpanOptions::on();
    options.query_text_max_length = Some(1000);
    let client = client(&server, options).await;

    fail_once(&client, doc! { "failCommands": ["createUser"], "errorCode": 8 }).await;

    let create = doc! { "createUser": "app", "pwd": "hunter2", "roles": [] };
    client.run(("shop", create)).await.unwrap_err();

    let [.., operation] = &listener.spans()[..] else { unreachable!() };
    assert_eq!(operation.shown(), "createUser shop");
    assert_eq!(operation.get("otel.status_description"), Some("its command failed; the rest may hold a secret"));
    assert_eq!(operation.get("exception.message"), None);
}

/// The names of spans that the client of another process has, with these variables, and the text of its command.
fn spans_in_environment(enabled: &str, length: &str) -> String {
    let test = ["--exact", "a_client_says_what_its_environment_asks_for", "--ignored", "--nocapture"];
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(test).env("OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED", enabled);
    command.env("OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH", length);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().find_map(|line| Some(line.split_once("spans: ")?.1.to_owned())).unwrap()
}

#[tokio::test]
#[ignore = "for the tests of the environment, which run it in a process of its own"]
async fn a_client_says_what_its_environment_asks_for() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let client = client(&server, SpanOptions::default()).await;

    client.run(("shop", doc! { "count": "orders" })).await.unwrap();

    let texts: Vec<_> =
        listener.spans().iter().filter_map(|span| Some(span.get("db.query.text")?.to_owned())).collect();
    println!("spans: {:?} {texts:?}", listener.paths());
}

#[test]
fn prose_1_the_environment_turns_spans_on_and_off() {
    assert_eq!(spans_in_environment("false", "0"), "[] []");
    assert_eq!(spans_in_environment("true", "0"), r#"["count shop.orders", "count shop.orders > count"] []"#);
}

#[test]
fn prose_2_the_environment_says_how_much_of_a_command_is_shown() {
    let shown = spans_in_environment("true", "1024");
    assert!(shown.ends_with(r#"["{\"count\":\"orders\"}"]"#), "{shown}");
    let cut = spans_in_environment("true", "8");
    assert!(cut.ends_with(r#"["{\"count\"..."]"#), "{cut}");
}

#[tokio::test]
async fn a_check_out_that_waits_has_a_span_within_that_of_its_caller() {
    let listener = Listener::default();
    let _guard = tracing::subscriber::set_default(listener.clone());
    let server = LocalServer::start();
    let options = ClientOptions::parse(&server.uri("maxPoolSize=1")).unwrap().0;
    let client = Client::builder(options).watch_holders(true).build().await.unwrap();

    let request = async {
        let held = client.check_out().label("first").await.unwrap();
        client.check_out_within(Duration::from_millis(20)).label("second").await.unwrap_err();
        drop(held);
        client.check_out().label("served at once").await.unwrap();
    };
    request.instrument(info_span!(target: "cmap::test", "request")).await;

    let [request, first, second] = &listener.spans()[..] else { panic!("{:?}", listener.spans()) };
    assert_eq!((first.name, first.parent, first.get("label")), ("check_out", Some(request.id), Some("first")));
    assert_eq!((first.get("driverConnectionId"), first.get("failure")), (Some("1"), None));
    assert!(first.get("place").unwrap().contains("spans.rs"), "{first:?}");
    assert_eq!((second.parent, second.get("label")), (Some(request.id), Some("second")));
    assert!(second.get("failure").unwrap().contains("maxPoolSize bound"), "{second:?}");
}

/// Keeps spans; those that are entered are on a stack.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<(Vec<Seen>, Vec<u64>)>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    id: u64,
    name: &'static str,
    parent: Option<u64>,
    handles: u32,
    fields: BTreeMap<&'static str, String>,
}

impl Seen {
    /// What a platform shows as its name.
    fn shown(&self) -> &str {
        self.get("otel.name").unwrap_or(self.name)
    }

    fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }
}

impl Listener {
    /// The names of all spans, each behind those of the spans around it.
    fn paths(&self) -> Vec<String> {
        let spans = self.spans();
        let path = |span: &Seen| {
            let mut path = vec![span.shown()];
            let mut parent = span.parent;
            while let Some(span) = parent.and_then(|id| spans.iter().find(|span| span.id == id)) {
                path.push(span.shown());
                parent = span.parent;
            }
            path.reverse();
            path.join(" > ")
        };
        spans.iter().map(path).collect()
    }

    /// Those that are still open.
    fn open(&self) -> Vec<Seen> {
        self.spans().into_iter().filter(|span| span.handles > 0).collect()
    }

    fn spans(&self) -> Vec<Seen> {
        self.0.lock().unwrap().0.clone()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("cmap::")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let id = seen.0.len() as u64 + 1;
        let parent = seen.1.last().copied();
        let mut span = Seen { id, name: attributes.metadata().name(), parent, handles: 1, ..Seen::default() };
        attributes.record(&mut span);
        seen.0.push(span);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut seen = self.0.lock().unwrap();
        values.record(seen.0.iter_mut().find(|span| span.id == id.into_u64()).unwrap());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn clone_span(&self, id: &Id) -> Id {
        self.0.lock().unwrap().0.iter_mut().find(|span| span.id == id.into_u64()).unwrap().handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut seen = self.0.lock().unwrap();
        let span = seen.0.iter_mut().find(|span| span.id == id.into_u64()).unwrap();
        span.handles -= 1;
        span.handles == 0
    }

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().1.push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().1.pop();
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name(), value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}
