//! `$where` with `sleep`: replies that take their time.

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};

use super::network::{Client, Network, config};

const MS: Duration = Duration::from_millis(1);

fn two_documents() -> (Network, Client) {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "insert": "c", "documents": [{}, {}] });
    (network, client)
}

fn find(code: &str) -> RawDocumentBuf {
    rawdoc! { "find": "c", "filter": { "$where": code } }
}

#[test]
fn a_reply_comes_after_the_sleep_for_each_document() {
    let (mut network, mut client) = two_documents();
    let mut other = network.connect();

    network.start(&mut client, "db", &find("sleep(2000) || true"));

    network.admin(&mut other, &rawdoc! { "ping": 1 });
    network.pass(3999 * MS);
    assert!(network.finish(&mut client).is_none());
    network.pass(MS);
    let reply = network.finish(&mut client).unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.into_iter().count(), 2);
}

#[test]
fn a_time_limit_ends_the_sleep() {
    let (mut network, mut client) = two_documents();
    let mut command = find("sleep(2000) || true");
    command.append(bson::cstr!("maxTimeMS"), 1500);

    network.start(&mut client, "db", &command);

    network.pass(1499 * MS);
    assert!(network.finish(&mut client).is_none());
    network.pass(MS);
    assert_eq!(network.finish(&mut client).unwrap().get_i32("code").unwrap(), 50);
}

#[test]
fn max_time_never_time_out_lets_it_sleep() {
    let (mut network, mut client) = two_documents();
    network.admin(&mut client, &rawdoc! { "configureFailPoint": "maxTimeNeverTimeOut", "mode": "alwaysOn" });
    let mut command = find("sleep(100) || true");
    command.append(bson::cstr!("maxTimeMS"), 1);

    network.start(&mut client, "db", &command);

    network.pass(200 * MS);
    assert_eq!(network.finish(&mut client).unwrap().get_f64("ok").unwrap(), 1.0);
}

#[test]
fn other_code_is_refused() {
    let (mut network, mut client) = two_documents();

    assert_eq!(network.fail(&mut client, "db", &find("this.x == 1")).code, Some(115));
}
