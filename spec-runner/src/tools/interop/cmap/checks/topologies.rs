//! Kinds of servers: member of a replica set, or behind a load balancer; and how changes are reported.

use std::io;
use std::time::{Duration, Instant};

use cmap_core::wire::bson::spec::BinarySubtype;
use cmap_core::wire::bson::{Bson, Document, RawBinaryRef, RawDocumentBuf, cstr, rawdoc};

use super::commands::number;
use crate::tools::interop::cmap::client::{Client, ClientError};
use crate::tools::interop::cmap::expect::{self, Mismatch, with_sources};
use crate::tools::interop::cmap::fail_point::{FailPoint, times};
use crate::tools::interop::cmap::servers::Servers;
use crate::tools::interop::cmap::stream::HelloStream;

#[expect(clippy::disallowed_methods, reason = "it is about time")]
pub(super) fn streaming_hello(servers: &Servers) -> Result<(), Mismatch> {
    let connect = || servers.connect("replica-set", "", &[]);

    // Without a change the server answers after this time, again and again.
    let mut stream = HelloStream::start(connect()??, Duration::from_millis(500))?;
    for _ in 0..3 {
        expect::equal(is_primary(&stream.next()?), true, "the server is primary")?;
    }

    // A change is reported at once, long before that.
    let mut stream = HelloStream::start(connect()??, Duration::from_secs(20))?;
    let mut operator = connect()??;
    let start = Instant::now();
    operator.run("admin", &rawdoc! { "replSetStepDown": 1, "force": true })?;
    while is_primary(&stream.next()?) {}
    expect::holds(start.elapsed() < Duration::from_secs(3), "the step-down is known at once")?;
    while !is_primary(&stream.next()?) {}
    expect::holds(start.elapsed() < Duration::from_secs(13), "and so is the end of it")
}

pub(super) fn replica_set(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.connect("replica-set", "", &[("replicaSet", "rs0")])??;
    let hello = client.run("admin", &rawdoc! { "hello": 1 })?;
    expect::equal((hello.get_str("setName").ok(), is_primary(&hello)), (Some("rs0"), true), "set name, primary")?;
    client.run("test", &rawdoc! { "drop": "retried" })?;
    client.insert("retried", &[rawdoc! { "_id": 1, "n": 0 }])?;

    // The first is not executed before it fails. The second is: the server must recognise it by its number.
    let concern_error = rawdoc! { "code": 262, "codeName": "ExceededTimeLimit", "errmsg": "too late" };
    let failures = [
        rawdoc! { "failCommands": ["update"], "errorCode": 262 },
        rawdoc! { "failCommands": ["update"], "writeConcernError": concern_error },
    ];
    for (n, data) in (1_i32..).zip(failures) {
        let what = format!("executions after {data:?}");
        let _fail_point = FailPoint::set(servers, "replica-set", times(1), data)?;
        let update = rawdoc! { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } };
        let update = numbered(rawdoc! { "update": "retried", "updates": [update] }, n.into())?;
        let failed = match client.run("test", &update) {
            Ok(reply) => reply.contains_key("writeConcernError"),
            Err(error) => error.code() == Some(262),
        };
        expect::holds(failed, "the fail point strikes")?;
        let again = client.run("test", &update)?;
        expect::equal(number(&again, "nModified"), Some(1), "modified")?;
        expect::equal(found_n(&mut client)?, n.into(), &what)?;
    }
    Ok(())
}

pub(super) fn load_balanced(servers: &Servers) -> Result<(), Mismatch> {
    let connect = |server| servers.connect(server, "", &[("loadBalanced", "true")]);
    let (one, other) = (connect("load-balanced")??, connect("load-balanced")??);
    let services = [&one, &other].map(|client| client.description().service_id);
    expect::holds(services[0].is_some() && services[0] == services[1], "both are connected to the same service")?;
    let error = expect::error(connect("open")?, "there is no load balancer")?;
    expect::holds(with_sources(&error).contains("load balancing"), "the error says so")
}

/// The command with a session and a number, under which the server executes it once.
pub(super) fn numbered(mut command: RawDocumentBuf, number: i64) -> Result<RawDocumentBuf, Mismatch> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| ClientError::Network(io::Error::other(error)))?;
    let mut session = RawDocumentBuf::new();
    session.append(cstr!("id"), RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: &id });
    command.append(cstr!("lsid"), session);
    command.append(cstr!("txnNumber"), number);
    Ok(command)
}

fn is_primary(hello: &Document) -> bool {
    hello.get_bool("isWritablePrimary").is_ok_and(|is_primary| is_primary)
}

fn found_n(client: &mut Client) -> Result<i64, Mismatch> {
    let found = client.run("test", &rawdoc! { "find": "retried" })?;
    let documents = super::commands::first_batch(&found);
    let n = documents.first().and_then(|document| number(document, "n"));
    expect::some(n, &format!("n in {:?}", Bson::from(found.clone())))
}
