//! Fail points: their effects, how often, and on which clients.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cmap_core::wire::bson::{RawBson, RawDocumentBuf, rawdoc};

use crate::tools::interop::cmap::client::{Client, ClientError};
use crate::tools::interop::cmap::expect::{self, Mismatch};
use crate::tools::interop::cmap::fail_point::{FailPoint, times as so_often};
use crate::tools::interop::cmap::servers::Servers;

pub(super) fn error_code(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    let _fail_point =
        FailPoint::set(servers, "open", so_often(1), rawdoc! { "failCommands": ["ping"], "errorCode": 2 })?;
    expect::code(ping(&mut client), 2, "the fail point strikes")?;
    Ok(ping(&mut client)?)
}

pub(super) fn close_connection(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    let data = rawdoc! { "failCommands": ["ping"], "closeConnection": true };
    let _fail_point = FailPoint::set(servers, "open", so_often(1), data)?;
    let error = expect::error(ping(&mut client), "the fail point strikes")?;
    expect::holds(matches!(error, ClientError::Network(_)), "it is a network error")?;
    Ok(ping(&mut servers.open()?)?)
}

#[expect(clippy::disallowed_methods, reason = "it is about time")]
pub(super) fn block_connection(servers: &Servers) -> Result<(), Mismatch> {
    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 500 };
    let _fail_point = FailPoint::set(servers, "open", so_often(1), data)?;
    let (mut blocked, mut other) = (servers.open()?, servers.open()?);
    let start = Barrier::new(2);
    let measure = |client: &mut Client, command: RawDocumentBuf| -> Result<Duration, ClientError> {
        start.wait();
        let start = Instant::now();
        client.run("admin", &command)?;
        Ok(start.elapsed())
    };
    let (ping, build_info) = thread::scope(|scope| {
        let other = scope.spawn(|| measure(&mut other, rawdoc! { "buildInfo": 1 }));
        (measure(&mut blocked, rawdoc! { "ping": 1 }), other.join())
    });
    let ping = ping?;
    let build_info = build_info.map_err(|_| Mismatch::Other("a thread panicked".into()))??;
    expect::holds(ping >= Duration::from_millis(500), &format!("{ping:?} is half a second"))?;
    expect::holds(build_info < ping, "another connection was not blocked")
}

pub(super) fn times(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    let mut outcomes = |count: usize| -> Result<String, Mismatch> {
        let outcome = |_| match ping(&mut client) {
            Ok(()) => Ok('+'),
            Err(error) if error.code() == Some(2) => Ok('-'),
            Err(error) => Err(error.into()),
        };
        (0..count).map(outcome).collect()
    };
    let modes: [(RawBson, _); 3] =
        [(so_often(2).into(), "--+"), (rawdoc! { "skip": 1 }.into(), "+--"), ("alwaysOn".into(), "---")];
    for (mode, expected) in modes {
        let what = format!("outcomes in the mode {mode:?}");
        let fail_point = FailPoint::set(servers, "open", mode, rawdoc! { "failCommands": ["ping"], "errorCode": 2 })?;
        expect::equal(&*outcomes(3)?, expected, &what)?;
        drop(fail_point);
        expect::equal(&*outcomes(1)?, "+", "outcome when it is off")?;
    }
    Ok(())
}

pub(super) fn app_name(servers: &Servers) -> Result<(), Mismatch> {
    let mut victim = servers.connect("open", "", &[("appName", "victim")])??;
    let mut other = servers.connect("open", "", &[("appName", "other")])??;
    let data = rawdoc! { "failCommands": ["ping"], "errorCode": 2, "appName": "victim" };
    let _fail_point = FailPoint::set(servers, "open", "alwaysOn", data)?;
    ping(&mut other)?;
    expect::code(ping(&mut victim), 2, "the fail point strikes")
}

pub(super) fn error_labels(servers: &Servers) -> Result<(), Mismatch> {
    let mut client = servers.open()?;
    let data = rawdoc! { "failCommands": ["ping"], "errorCode": 2, "errorLabels": ["Mine", "Yours"] };
    let _fail_point = FailPoint::set(servers, "open", so_often(1), data)?;
    has_labels(ping(&mut client), &["Mine", "Yours"])?;

    // A replica set labels errors that a driver may retry (SRV-8): those of a command with a number.
    let mut member = servers.connect("replica-set", "", &[])??;
    let data = rawdoc! { "failCommands": ["insert"], "errorCode": 262 };
    let _fail_point = FailPoint::set(servers, "replica-set", so_often(1), data)?;
    let numbered = super::topologies::numbered(rawdoc! { "insert": "labels", "documents": [rawdoc! {}] }, 1)?;
    has_labels(member.run("test", &numbered).map(drop), &["RetryableWriteError"])
}

fn has_labels(result: Result<(), ClientError>, labels: &[&str]) -> Result<(), Mismatch> {
    match expect::error(result, "the fail point strikes")? {
        ClientError::Server(error) => {
            expect::equal(error.labels, labels.iter().map(|&l| l.to_owned()).collect(), "labels")
        }
        error @ (ClientError::Uri(_)
        | ClientError::Establish(_)
        | ClientError::Command(_)
        | ClientError::Network(_)
        | ClientError::Protocol(_)
        | ClientError::Reply(_)) => Err(error.into()),
    }
}

fn ping(client: &mut Client) -> Result<(), ClientError> {
    client.run("admin", &rawdoc! { "ping": 1 }).map(drop)
}
