//! The hello: the server's description of itself, and the client's (SRV-1, SRV-6, SRV-7).

use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::time::Instant;
use cmap_core::wire::{CompressorId, Limits, TopologyVersion};

use super::document::{array, document};
use super::failure::{Outcome, fail};
use super::identity::Identity;
use super::request::{Arguments, Request};
use super::sasl::Sasl;
use super::service::Service;
use super::users::UserName;
use crate::store::CommandFailure;

/// The longest metadata of a client (HS-10).
const MAX_METADATA: usize = 512;
/// The longest name of an application (HS-9).
const MAX_APP_NAME: usize = 128;

/// The wait that an awaitable hello asks for: the version known, and the longest time.
pub(super) struct News {
    known: TopologyVersion,
    pub(super) wait: Duration,
}

/// The wait that a hello asks for, if any.
pub(super) fn wait_for_news(request: &Request<'_>) -> Result<Option<News>, CommandFailure> {
    let known = request.arguments.document("topologyVersion")?;
    let wait = request.arguments.integer("maxAwaitTimeMS")?;
    match (known, wait) {
        (None, None) => Ok(None),
        (Some(known), Some(wait)) => {
            let wait = u64::try_from(wait).map_err(|_| fail(2, "maxAwaitTimeMS must be a non-negative integer"))?;
            let known = TopologyVersion::read(known.0).ok_or_else(|| fail(2, "malformed topologyVersion"))?;
            Ok(Some(News { known, wait: Duration::from_millis(wait) }))
        }
        (Some(_), None) => Err(fail(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'")),
        (None, Some(_)) => Err(fail(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'")),
    }
}

impl News {
    /// Whether there are news compared with `current`.
    pub(super) fn are_there(&self, current: TopologyVersion) -> Result<bool, CommandFailure> {
        let Self { known, .. } = self;
        if known.process_id == current.process_id && known.counter > current.counter {
            let message = format!(
                "Received a topology version with counter: {} which is greater than the server topology version \
                 counter: {}",
                known.counter, current.counter
            );
            return Err(fail(31382, message));
        }
        Ok(*known != current)
    }
}

impl Service {
    /// Carries out a hello.
    pub(super) fn hello(&mut self, now: Instant, identity: &mut Identity, request: &Request<'_>) -> Outcome {
        let arguments = request.arguments;
        learn(identity, arguments)?;

        let is_primary = self.replica_set.as_ref().is_none_or(|set| set.is_primary());
        let mut reply = RawDocumentBuf::new();
        if arguments.flag("helloOk") {
            reply.append(bson::cstr!("helloOk"), true);
        }
        match request.name {
            "hello" => reply.append(bson::cstr!("isWritablePrimary"), is_primary),
            _ => reply.append(bson::cstr!("ismaster"), is_primary),
        }
        let version = self.topology_version();
        let limits = Limits::DEFAULT;
        let size = |size: u32| i32::try_from(size).unwrap_or(i32::MAX);
        reply.append(bson::cstr!("topologyVersion"), topology_document(version));
        if let Some(set) = &self.replica_set {
            let unix = self.clock.unix(now);
            let complete_until = set.complete_until(now, unix);
            set.describe(&mut reply, self.cluster_time.at(complete_until), complete_until);
        }
        reply.append(bson::cstr!("maxBsonObjectSize"), size(limits.max_document_size));
        reply.append(bson::cstr!("maxMessageSizeBytes"), size(limits.max_message_size));
        reply.append(
            bson::cstr!("maxWriteBatchSize"),
            size(u32::try_from(self.config.limits.write_batch).unwrap_or(u32::MAX)),
        );
        reply.append(bson::cstr!("localTime"), self.clock.date(now));
        reply.append(bson::cstr!("logicalSessionTimeoutMinutes"), 30);
        reply.append(bson::cstr!("connectionId"), i32::try_from(identity.connection_id).unwrap_or(i32::MAX));
        let (oldest, newest) = self.config.wire_versions;
        reply.append(bson::cstr!("minWireVersion"), oldest);
        reply.append(bson::cstr!("maxWireVersion"), newest);
        reply.append(bson::cstr!("readOnly"), false);
        if self.config.is_mongos() {
            reply.append(bson::cstr!("msg"), "isdbgrid");
        }
        if self.config.load_balanced && arguments.flag("loadBalanced") {
            reply.append(bson::cstr!("serviceId"), self.service_id);
        }
        self.agree_on_compression(&mut reply, arguments)?;
        self.offer_mechanisms(&mut reply, arguments)?;
        if let Ok(Some(first)) = arguments.document("speculativeAuthenticate") {
            let mut sasl = Sasl { users: &self.users, random: &mut self.random };
            if let Some(answer) = sasl.speculate(identity, first) {
                reply.append(bson::cstr!("speculativeAuthenticate"), answer);
            }
        }
        Ok(reply)
    }

    /// The compressors of both sides, in the client's order (COMP-1, COMP-4).
    fn agree_on_compression(&self, reply: &mut RawDocumentBuf, arguments: Arguments<'_>) -> Result<(), CommandFailure> {
        let Some(offered) = arguments.texts("compression")? else { return Ok(()) };
        let known = |name| CompressorId::from_name(name).filter(|id| self.config.compressors.contains(id));
        let mut shared = offered.filter_map(known).map(CompressorId::name).peekable();
        if shared.peek().is_some() {
            reply.append(bson::cstr!("compression"), array(shared));
        }
        Ok(())
    }

    /// `saslSupportedMechs` of a user that exists (AUTH-6).
    fn offer_mechanisms(&self, reply: &mut RawDocumentBuf, arguments: Arguments<'_>) -> Result<(), CommandFailure> {
        let Some(user) = arguments.text("saslSupportedMechs")? else { return Ok(()) };
        let Some((database, name)) = user.split_once('.') else {
            return Err(fail(2, "UserName must contain a '.' separated database.user pair"));
        };
        if let Some(account) = self.users.get(&UserName::new(database, name)) {
            reply.append(bson::cstr!("saslSupportedMechs"), account.mechanisms());
        }
        Ok(())
    }
}

pub(crate) fn topology_document(version: TopologyVersion) -> RawDocumentBuf {
    document! {
        "processId": bson::oid::ObjectId::from_bytes(version.process_id),
        "counter": version.counter,
    }
}

/// Takes the metadata out of a first hello; no other may have any (HS-6).
fn learn(identity: &mut Identity, arguments: Arguments<'_>) -> Result<(), CommandFailure> {
    let metadata = arguments.document("client")?;
    if identity.is_known {
        return match metadata {
            Some(_) => Err(fail(186, "The client metadata document may only be sent in the first hello")),
            None => Ok(()),
        };
    }
    if let Some(metadata) = metadata {
        identity.app_name = app_name(metadata)?;
    }
    identity.is_known = true;
    Ok(())
}

/// Checks a client's metadata (SRV-6), and takes the application's name out of it.
fn app_name(metadata: Arguments<'_>) -> Result<Option<String>, CommandFailure> {
    if metadata.0.as_bytes().len() > MAX_METADATA {
        let message = format!("The client metadata document must be less then or equal to {MAX_METADATA} bytes");
        return Err(fail(185, message));
    }
    let missing = |field| fail(183, format!("Missing required field '{field}' in the client metadata document"));
    let driver = metadata.document("driver")?.ok_or_else(|| missing("driver"))?;
    driver.text("name")?.ok_or_else(|| missing("driver.name"))?;
    driver.text("version")?.ok_or_else(|| missing("driver.version"))?;
    let os = metadata.document("os")?.ok_or_else(|| missing("os"))?;
    os.text("type")?.ok_or_else(|| missing("os.type"))?;
    let Some(application) = metadata.document("application")? else { return Ok(None) };
    match application.text("name")? {
        Some(name) if name.len() > MAX_APP_NAME => {
            Err(fail(184, format!("The 'application.name' field must be less then or equal to {MAX_APP_NAME} bytes")))
        }
        name => Ok(name.map(String::from)),
    }
}
