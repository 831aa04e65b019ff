//! Log records match the specification exactly (LOG-10 to LOG-13), in both forms.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::log::{LogRecord, LogValue, MaxDocumentLength, TopologyId};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, Cause, CheckOutRequest, CheckedIn, Clear, Condition, Handle, Output, Pool, Reaction, ServiceId,
};
use cmap_core::server::{HeartbeatEvent, MonitorConnection, ServerEvent};
use cmap_core::time::Instant;
use cmap_core::topology::{self, Topology, TopologyOptions};

/// A pool under observation: every event becomes its structured and its unstructured form.
struct Logged {
    pool: Pool<()>,
    connection: Option<Handle>,
    structured: Vec<serde_json::Value>,
    unstructured: Vec<String>,
}

impl Logged {
    fn new(options: PoolOptions) -> Self {
        let pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, Instant::ORIGIN).unwrap();
        let mut logged = Self { pool, connection: None, structured: Vec::new(), unstructured: Vec::new() };
        logged.drain();
        logged
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut Pool<()>) -> R) -> R {
        let result = call(&mut self.pool);
        self.drain();
        result
    }

    fn drain(&mut self) {
        while let Some(output) = self.pool.poll_output() {
            match output {
                Output::Event(event) => {
                    let record = LogRecord::new(self.pool.address(), &event);
                    self.structured.push(serde_json::to_value(&record).unwrap());
                    self.unstructured.push(record.to_string());
                }
                Output::Action(Action::Connect { connection } | Action::Deliver { connection, .. }) => {
                    self.connection = Some(connection);
                }
                Output::Action(_) => {}
            }
        }
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A connection's whole life, and the pool's.
fn a_life() -> Logged {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.wait_queue_timeout = Some(Duration::from_millis(50));
    let mut logged = Logged::new(options);
    logged.call(|pool| pool.ready(at(0)));
    logged.call(|pool| pool.check_out(at(0), CheckOutRequest::default()));
    let connection = logged.connection.unwrap();
    logged.call(|pool| pool.handle_established(at(2), connection, ())).unwrap();
    logged.call(|pool| pool.check_out(at(2), CheckOutRequest::default()));
    logged.call(|pool| pool.handle_timeout(at(52)));
    logged.call(|pool| pool.clear(at(52), Clear::pool(Cause::new("gone")))).unwrap();
    let checked_in = logged.call(|pool| {
        pool.check_in(at(52), pool.use_of(connection).unwrap().check_out, connection, (), Condition::Usable)
    });
    assert_eq!(checked_in, Ok(CheckedIn::Done));
    logged.call(|pool| pool.close(at(52)));
    logged
}

#[test]
fn the_unstructured_form_is_that_of_the_specification() {
    assert_eq!(
        a_life().unstructured,
        [
            "Connection pool created for db.example:27017 using options maxPoolSize=1, waitQueueTimeoutMS=50",
            "Connection pool ready for db.example:27017",
            "Checkout started for connection to db.example:27017",
            "Connection created: address=db.example:27017, driver-generated ID=1",
            "Connection ready: address=db.example:27017, driver-generated ID=1, established in=2 ms",
            "Connection checked out: address=db.example:27017, driver-generated ID=1, duration=2 ms",
            "Checkout started for connection to db.example:27017",
            "Checkout failed for connection to db.example:27017. Reason: Wait queue timeout elapsed without a connection \
             becoming available. Duration: 50 ms",
            "Connection pool for db.example:27017 cleared",
            "Connection checked in: address=db.example:27017, driver-generated ID=1",
            "Connection closed: address=db.example:27017, driver-generated ID=1. Reason: Connection became stale because \
             the pool was cleared",
            "Connection pool closed for db.example:27017",
        ]
    );
}

#[test]
fn every_record_names_its_message_host_and_port_and_connections_their_id() {
    for record in a_life().structured {
        let message = record["message"].as_str().unwrap();
        assert_eq!((&record["serverHost"], &record["serverPort"]), (&"db.example".into(), &27017.into()), "{message}");
        let has_id = !message.starts_with("Connection pool") && !message.starts_with("Connection checkout");
        assert_eq!(record.get("driverConnectionId").is_some(), has_id, "{message}");
        let has_duration =
            ["Connection ready", "Connection checkout failed", "Connection checked out"].contains(&message);
        assert_eq!(record.get("durationMS").is_some(), has_duration, "{message}");
    }
}

#[test]
fn only_options_that_the_user_set_are_logged() {
    let created = &a_life().structured[0];

    assert_eq!(created["maxPoolSize"], 1);
    assert_eq!(created["waitQueueTimeoutMS"], 50);
    assert_eq!(created.as_object().unwrap().len(), 5, "{created}");
}

#[test]
fn an_establishment_error_is_told_by_the_connection_and_by_the_check_out() {
    let mut logged = Logged::new(PoolOptions::default());
    logged.call(|pool| pool.ready(at(0)));
    logged.call(|pool| pool.check_out(at(0), CheckOutRequest::default()));
    let connection = logged.connection.unwrap();
    let error = EstablishError::new(Phase::Connect, Fault::Network, "connection refused");
    logged.call(|pool| pool.handle_establish_failed(at(3), connection, error, Reaction::KeepPool)).unwrap();

    let [.., closed, failed] = logged.structured.as_slice() else { panic!("two records at least") };

    assert_eq!(closed["reason"], "An error occurred while using the connection");
    assert_eq!(closed["error"], "connecting failed: connection refused");
    assert_eq!(failed["reason"], "An error occurred while trying to establish a new connection");
    assert!(failed["error"].as_str().unwrap().starts_with("connecting failed: connection refused"));
    assert_eq!(failed["durationMS"], 3.0);
}

#[test]
fn a_cleared_service_is_named_in_hex() {
    let mut options = PoolOptions::default();
    options.load_balanced = true;
    let mut logged = Logged::new(options);
    let service = ServiceId([0xab; 12]);
    logged.call(|pool| pool.ready(at(0)));
    logged.call(|pool| pool.check_out(at(0), CheckOutRequest::default()));
    let connection = logged.connection.unwrap();
    logged.call(|pool| pool.handle_hello(at(0), connection, service)).unwrap();
    logged.call(|pool| pool.clear(at(0), Clear::service(service, Cause::new("gone")))).unwrap();

    let cleared = logged.structured.last().unwrap();

    assert_eq!(cleared["serviceId"], "abababababababababababab");
    assert!(logged.unstructured.last().unwrap().ends_with("cleared for serviceId abababababababababababab"));
}

#[test]
fn a_unix_socket_has_no_port() {
    let address: ServerAddress = "/tmp/mongodb-27017.sock".parse().unwrap();
    let record = LogRecord::new(&address, &cmap_core::pool::Event::PoolReady);

    assert_eq!(record.field("serverHost"), Some(&LogValue::Text("/tmp/mongodb-27017.sock".into())));
    assert_eq!(record.field("serverPort"), None);
}

/// Both forms of the record of an event of a server.
fn of_server(event: &ServerEvent) -> (serde_json::Value, String) {
    let address = ServerAddress::tcp("db.example", 27017);
    let record = LogRecord::of_server(TopologyId(5), &address, event, MaxDocumentLength::default()).unwrap();
    (serde_json::to_value(&record).unwrap(), record.to_string())
}

#[test]
fn a_topology_and_its_server_come_and_go_log_14() {
    let options = TopologyOptions::of_seeds(vec![ServerAddress::tcp("db.example", 27017)]);
    let mut topology = Topology::<()>::new(options, PoolOptions::default()).unwrap();
    topology.open(Instant::ORIGIN);
    topology.close(Instant::ORIGIN);
    let mut texts = Vec::new();
    while let Some(output) = topology.poll_output() {
        match output {
            topology::Output::Server { event, .. } => texts.push(of_server(&event).1),
            topology::Output::Topology(event) => texts.push(LogRecord::of_topology(TopologyId(5), &event).to_string()),
            topology::Output::Pool { .. } | topology::Output::Monitor { .. } => {}
            topology::Output::Selection(event) => panic!("nobody asked for {event:?}"),
            topology::Output::Selected { .. }
            | topology::Output::Reselecting { .. }
            | topology::Output::SelectionFailed { .. }
            | topology::Output::WarmedUp { .. }
            | topology::Output::ResolveSrv { .. } => panic!("{output:?}"),
        }
    }

    let changed = "Description changed for topology with ID 5. ";
    assert_eq!(
        texts,
        [
            "Starting monitoring for topology with ID 5".into(),
            format!("{changed}Previous description: Unknown. New description: Unknown, db.example:27017 Unknown"),
            "Starting monitoring for server db.example:27017 in topology with ID 5".into(),
            "Stopped monitoring for server db.example:27017 in topology with ID 5".into(),
            format!("{changed}Previous description: Unknown, db.example:27017 Unknown. New description: Unknown"),
            "Stopped monitoring for topology with ID 5".into(),
        ]
    );
}

#[test]
fn heartbeats_name_their_connection_log_14() {
    let connection = MonitorConnection { id: 1, server_id: Some(7) };
    let reply = bson::rawdoc! { "ok": 1 };
    let (reply, duration) = (reply.as_bytes().into(), Duration::from_millis(2));
    let (structured, unstructured) =
        of_server(&ServerEvent::Heartbeat(HeartbeatEvent::Succeeded { connection, duration, reply, awaited: true }));

    assert_eq!(
        structured,
        serde_json::json!({
            "message": "Server heartbeat succeeded", "topologyId": 5, "serverHost": "db.example", "serverPort": 27017,
            "awaited": true, "driverConnectionId": 1, "serverConnectionId": 7, "durationMS": 2.0, "reply": "{\"ok\":1}",
        })
    );
    assert_eq!(
        unstructured,
        "Heartbeat succeeded in 2 ms for db.example:27017 on connection with driver-generated ID 1 and server-generated ID 7 \
         in topology with ID 5. Awaited: true. Reply: {\"ok\":1}"
    );

    let connection = MonitorConnection { id: 2, server_id: None };
    let failure = Cause::new("refused");
    let failed = ServerEvent::Heartbeat(HeartbeatEvent::Failed { connection, duration, failure, awaited: false });
    let (structured, unstructured) = of_server(&failed);
    assert_eq!((&structured["failure"], structured.get("serverConnectionId")), (&"refused".into(), None));
    assert_eq!(
        unstructured,
        "Heartbeat failed in 2 ms for db.example:27017 on connection with driver-generated ID 2 in topology with ID 5. \
         Awaited: false. Failure: refused"
    );
}

#[test]
fn a_long_reply_is_cut_log_5() {
    let connection = MonitorConnection { id: 1, server_id: None };
    let reply = bson::rawdoc! { "hosts": "a".repeat(2000) };
    let (reply, duration) = (reply.as_bytes().into(), Duration::from_millis(2));

    let (structured, unstructured) =
        of_server(&ServerEvent::Heartbeat(HeartbeatEvent::Succeeded { connection, duration, reply, awaited: true }));

    let expected = format!("{{\"hosts\":\"{}...", "a".repeat(990));
    assert_eq!(structured["reply"], expected);
    assert!(unstructured.ends_with(&expected), "{unstructured}");
}
