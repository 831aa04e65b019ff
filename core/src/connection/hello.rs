//! The first command on every socket, and what its reply says about the server (HS-1 to HS-6).

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bson::spec::BinarySubtype;
use bson::{RawArrayBuf, RawBinaryRef, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use zeroize::Zeroize;

use super::ConnectionOptions;
use super::auth::{Authentication, First, Payload};
use crate::service_id::ServiceId;
use crate::wire::{CompressorId, Limits, TopologyVersion};
use crate::wire_version::incompatibility;

/// A document without fields.
const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];
/// What a command of a conversation has besides its payload, in bytes.
const ROOM: usize = 256;

/// The server's description of itself in the hello of one connection (HS-16).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// How large messages and documents may be.
    pub limits: Limits,
    /// The oldest and the newest version of the protocol that the server speaks.
    pub wire_versions: (i32, i32),
    /// The server's number for this connection, as its log has it.
    pub connection_id: Option<i64>,
    /// The service behind a load balancer (LB-6, LB-7).
    pub service_id: Option<ServiceId>,
    /// Whether later hellos may use the command `hello` (HS-5).
    pub hello_ok: bool,
    /// Whether the server calls itself an arbiter. Never true for a connection with a credential.
    pub is_arbiter: bool,
    /// The server's version of its topology.
    pub topology_version: Option<TopologyVersion>,
    /// What the server is to its clients.
    pub role: Role,
    /// For how long the server keeps unused sessions; `None` if it has none (SES-1).
    pub logical_session_timeout_minutes: Option<i64>,
    /// The compressors that the server shares with the client, in the client's order (COMP-4, X-3).
    pub compressors: Vec<CompressorId>,
}

/// What a server is to its clients, as its hello says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// It stands alone: no other server has its data.
    #[default]
    Standalone,
    /// It is a member of a replica set.
    Member,
    /// It routes to the servers of a sharded cluster.
    Mongos,
}

/// What a connection's hello said of its server, as far as commands depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// What the server is to its clients.
    pub role: Role,
    /// Whether a load balancer stands between.
    pub is_load_balanced: bool,
    /// Whether it has sessions (SES-1).
    pub has_sessions: bool,
    /// The newest version of the protocol that it speaks.
    pub max_wire_version: i32,
}

/// The fields of a hello's reply that authentication uses.
#[derive(Debug, Default)]
pub(super) struct Offers {
    pub(super) mechanisms: Option<Vec<String>>,
    pub(super) speculative: Option<RawDocumentBuf>,
}

/// The hello of a connection. Behind a load balancer and with a server API it is `hello`, because such servers know the
/// command; otherwise it has the legacy name, with helloOk (HS-3).
/// `speculative` is the first command of a login besides those of an `authentication`.
pub(super) fn command(
    options: &ConnectionOptions,
    authentication: Option<&Authentication>,
    speculative: Option<RawDocumentBuf>,
) -> RawDocumentBuf {
    let mut hello = speculative.as_ref().map_or_else(RawDocumentBuf::new, |it| with_room(it.as_bytes().len() + 2048));
    if options.load_balanced || options.server_api.is_some() {
        hello.append(bson::cstr!("hello"), 1);
    } else {
        hello.append(bson::cstr!("isMaster"), 1);
    }
    if options.load_balanced {
        hello.append(bson::cstr!("loadBalanced"), true);
    } else {
        hello.append(bson::cstr!("helloOk"), true);
    }
    //
    hello.append(bson::cstr!("backpressure"), "2");
    hello.append(bson::cstr!("client"), options.metadata.to_document());
    let mut compression = RawArrayBuf::new();
    for compressor in &options.compressors {
        compression.push(compressor.id().name());
    }
    hello.append(bson::cstr!("compression"), compression);
    if let Some(authentication) = authentication {
        if let Some(user) = authentication.sasl_supported_mechs() {
            hello.append(bson::cstr!("saslSupportedMechs"), user);
        }
        if let Some(first) = authentication.speculative() {
            let mut speculative = first_command(first);
            if let First::SaslStart { .. } = first
                && let Some(credential) = &options.credential
            {
                speculative.append(bson::cstr!("db"), credential.source.as_str());
            }
            hello.append(bson::cstr!("speculativeAuthenticate"), speculative);
        }
    }
    if let Some(speculative) = speculative {
        hello.append(bson::cstr!("speculativeAuthenticate"), RawBsonRef::Document(&speculative));
        // It has an access token in it, as the hello does, which is overwritten when it is sent.
        speculative.into_bytes().zeroize();
    }
    hello
}

/// The hello of a connection without authentication.
pub(crate) fn first_hello(options: &ConnectionOptions) -> RawDocumentBuf {
    command(options, None, None)
}

/// The command that opens a conversation.
pub(super) fn first_command(first: First<'_>) -> RawDocumentBuf {
    match first {
        First::SaslStart { mechanism, payload, skip_empty_exchange } => {
            let mut command = with_room(payload.as_bytes().len() + ROOM);
            command.append(bson::cstr!("saslStart"), 1);
            command.append(bson::cstr!("mechanism"), mechanism.name());
            command.append(bson::cstr!("payload"), binary(payload.as_bytes()));
            if skip_empty_exchange {
                let mut options = RawDocumentBuf::new();
                options.append(bson::cstr!("skipEmptyExchange"), true);
                command.append(bson::cstr!("options"), options);
            }
            command
        }
        First::Authenticate { user } => {
            let mut command = RawDocumentBuf::new();
            command.append(bson::cstr!("authenticate"), 1);
            command.append(bson::cstr!("mechanism"), "MONGODB-X509");
            if let Some(user) = user {
                command.append(bson::cstr!("user"), user);
            }
            command
        }
    }
}

/// The command that opens a conversation by MONGODB-OIDC, or a mechanism of the user's own.
pub(super) fn sasl_start(mechanism: &str, payload: &Payload) -> RawDocumentBuf {
    let mut command = with_room(payload.as_bytes().len() + mechanism.len() + ROOM);
    command.append(bson::cstr!("saslStart"), 1);
    command.append(bson::cstr!("mechanism"), mechanism);
    command.append(bson::cstr!("payload"), binary(payload.as_bytes()));
    command
}

/// The command that goes on with a conversation.
pub(super) fn next_command(id: &RawBson, payload: &Payload) -> RawDocumentBuf {
    let mut command = with_room(payload.as_bytes().len() + ROOM);
    command.append(bson::cstr!("saslContinue"), 1);
    command.append(bson::cstr!("conversationId"), id.as_raw_bson_ref());
    command.append(bson::cstr!("payload"), binary(payload.as_bytes()));
    command
}

/// An empty document with room for so many bytes. A document that grows leaves its smaller self behind, perhaps with a secret in it.
fn with_room(bytes: usize) -> RawDocumentBuf {
    let mut document = Vec::with_capacity(EMPTY.len() + bytes);
    document.extend_from_slice(&EMPTY);
    RawDocumentBuf::from_bytes(document).unwrap_or_default()
}

pub(super) fn binary(bytes: &[u8]) -> RawBinaryRef<'_> {
    RawBinaryRef { subtype: BinarySubtype::Generic, bytes }
}

impl Peer {
    /// Whether it carries out a write once for each transaction number (RTY-4).
    pub fn has_transaction_numbers(self) -> bool {
        self.has_sessions && (self.is_load_balanced || self.role != Role::Standalone)
    }
}

impl Description {
    /// What commands on the connection depend on.
    pub fn peer(&self) -> Peer {
        let is_load_balanced = self.service_id.is_some();
        Peer {
            role: self.role,
            is_load_balanced,
            has_sessions: is_load_balanced || self.logical_session_timeout_minutes.is_some(),
            max_wire_version: self.wire_versions.1,
        }
    }

    /// Reads the reply to a hello that succeeded.
    ///
    /// The reason why this client cannot talk to the server, in words for the user.
    pub(super) fn read(reply: &RawDocument, options: &ConnectionOptions) -> Result<(Self, Offers), String> {
        let number = |name: &str| reply.get(name).ok().flatten().and_then(crate::wire::integer);
        let flag = |name: &str| reply.get(name).ok().flatten().and_then(|value| value.as_bool()).unwrap_or_default();
        let version = |name| i32::try_from(number(name).unwrap_or_default()).unwrap_or_default();
        let (oldest, newest) = (version("minWireVersion"), version("maxWireVersion"));
        if number("maxWireVersion").is_none() {
            return Err("the server does not say which protocol it speaks: it is no MongoDB, or too old".to_string());
        }
        if let Some(text) = incompatibility((oldest, newest)) {
            return Err(text);
        }
        let service_id = reply.get_object_id("serviceId").ok().map(|id| ServiceId(id.bytes()));
        if options.load_balanced && service_id.is_none() {
            // LB-6, in the specification's words.
            return Err(
                "Driver attempted to initialize in load balancing mode, but the server does not support this mode."
                    .to_string(),
            );
        }
        let offered = texts(reply, "compression").unwrap_or_default();
        let ids = options.compressors.iter().map(|compressor| compressor.id());
        let description = Self {
            limits: Limits::from_hello(reply),
            wire_versions: (oldest, newest),
            connection_id: number("connectionId"),
            service_id: service_id.filter(|_| options.load_balanced),
            hello_ok: flag("helloOk"),
            is_arbiter: flag("arbiterOnly"),
            topology_version: reply.get_document("topologyVersion").ok().and_then(TopologyVersion::read),
            role: Role::read(reply),
            logical_session_timeout_minutes: number("logicalSessionTimeoutMinutes"),
            compressors: ids.filter(|id| offered.iter().any(|name| name == id.name())).collect(),
        };
        let offers = Offers {
            mechanisms: texts(reply, "saslSupportedMechs"),
            speculative: reply.get_document("speculativeAuthenticate").ok().map(RawDocument::to_owned),
        };
        Ok((description, offers))
    }
}

impl Role {
    fn read(reply: &RawDocument) -> Self {
        if reply.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
            Self::Mongos
        } else if reply.get_str("setName").is_ok() {
            Self::Member
        } else {
            Self::Standalone
        }
    }
}

/// The texts of an array; other elements are ignored (AUTH-8).
fn texts(reply: &RawDocument, name: &str) -> Option<Vec<String>> {
    let array = reply.get_array(name).ok()?;
    Some(array.into_iter().filter_map(|item| item.ok()?.as_str().map(ToString::to_string)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::auth::token_payload;
    use super::*;
    use crate::options::Secret;

    #[test]
    fn a_command_with_a_token_is_made_in_its_size() {
        let token = Secret::from("t".repeat(10_000));

        let command = sasl_start("MONGODB-OIDC", &token_payload(&token));

        // One that had to grow would have room for two.
        assert!(command.into_bytes().capacity() < 11_000);
    }
}
