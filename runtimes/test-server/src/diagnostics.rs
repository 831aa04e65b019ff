//! The server's description of itself beyond its hello: version, command line, status (SRV-2).

use bson::{RawArrayBuf, RawDocumentBuf};
use cmap_core::time::Instant;
use cmap_core::wire::Limits;

use super::document::{array, document};
use super::identity::Identity;
use super::service::Service;
use super::traffic::long;
use super::users::Users;
use crate::ServerVersion;

/// `buildInfo`.
pub(super) fn build_info(version: ServerVersion) -> RawDocumentBuf {
    document! {
        "version": version.number(), "gitVersion": "embedded", "modules": RawArrayBuf::new(), "allocator": "system", "javascriptEngine": "none",
        "sysInfo": "deprecated", "versionArray": array(version.parts()), "bits": 64, "debug": false,
        "maxBsonObjectSize": i32::try_from(Limits::DEFAULT.max_document_size).unwrap_or(i32::MAX),
        "storageEngines": array(["inMemory"]),
    }
}

/// `hostInfo`.
pub(super) fn host_info(hostname: &str) -> RawDocumentBuf {
    document! {
        "system": document! { "hostname": hostname, "cpuAddrSize": 64, "numCores": 1, "cpuArch": "unknown" },
        "os": document! { "type": "unknown", "name": "unknown", "version": "unknown" },
        "extra": document! {},
    }
}

/// `getLog`: the log is empty.
pub(super) fn log() -> RawDocumentBuf {
    document! { "totalLinesWritten": 0, "log": RawArrayBuf::new() }
}

/// `connectionStatus`.
pub(super) fn connection_status(identity: &Identity, users: &Users) -> RawDocumentBuf {
    let (mut names, mut roles) = (RawArrayBuf::new(), RawArrayBuf::new());
    for login in identity.logins() {
        names.push(login.to_document());
        if let Some(account) = users.get(login) {
            account.roles().into_iter().map_while(Result::ok).for_each(|role| roles.push(role));
        }
    }
    document! { "authInfo": document! { "authenticatedUsers": names, "authenticatedUserRoles": roles } }
}

impl Service {
    /// `getCmdLineOpts`, as if the server were one of MongoDB's.
    pub(super) fn command_line(&self) -> RawDocumentBuf {
        let mut argv = RawArrayBuf::new();
        [self.process_name(), "--setParameter", "enableTestCommands=1"].into_iter().for_each(|word| argv.push(word));
        let port = self.config.address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let mut parsed = document! {
            "net": document! { "port": i32::from(port.unwrap_or_default()) },
            "setParameter": document! { "enableTestCommands": "1" },
        };
        if let Some(set) = &self.replica_set {
            ["--replSet", set.name()].into_iter().for_each(|word| argv.push(word));
            parsed.append(bson::cstr!("replication"), document! { "replSet": set.name() });
        }
        if self.config.authorization {
            argv.push("--auth");
            parsed.append(bson::cstr!("security"), document! { "authorization": "enabled" });
        }
        document! { "argv": argv, "parsed": parsed }
    }

    fn process_name(&self) -> &'static str {
        if self.config.is_mongos() { "mongos" } else { "mongod" }
    }

    /// `serverStatus`.
    pub(super) fn status(&self, now: Instant) -> RawDocumentBuf {
        let uptime = self.clock.uptime(now);
        let current = i32::try_from(self.clients).unwrap_or(i32::MAX);
        let mut status = document! {
            "host": self.config.address.as_str(),
            "version": self.config.version.number(),
            "process": self.process_name(),
            "pid": 1_i64,
            "uptime": uptime.as_secs_f64(),
            "uptimeMillis": i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX),
            "localTime": self.clock.date(now),
            "connections": document! {
                "current": current, "available": i32::MAX - current, "totalCreated": long(self.clients_ever),
                "active": current,
            },
            "queues": document! { "ingressSessionEstablishment": self.ingress.status() },
            "transactions": document! { "currentOpen": long(self.transactions.open() as u64) },
            "network": self.traffic.to_document(&self.config.compressors),
            "storageEngine": document! { "name": "inMemory", "supportsCommittedReads": true, "persistent": false },
        };
        if let Some(set) = &self.replica_set {
            status.append(
                bson::cstr!("repl"),
                document! { "setName": set.name(), "isWritablePrimary": set.is_primary() },
            );
        }
        status
    }
}
