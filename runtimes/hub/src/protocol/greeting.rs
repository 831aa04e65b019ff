//! The hub's hello: that of a router behind a load balancer, so that drivers start no monitors, and keep cursors and transactions
//! to their connection.

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use cmap_core::pool::ServiceId;
use cmap_core::wire::Limits;

use super::refusal::Refusal;

/// What the hub's hello tells about itself and its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The hub's run: another one after each start.
    pub service: ServiceId,
    /// The newest protocol that all servers upstream speak.
    pub max_wire_version: i32,
    /// Whether clients have to log in.
    pub has_users: bool,
    /// What it begins for clients that have nothing open.
    pub begins: Begins,
}

/// What a hub begins for clients that have nothing open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Whatever they ask for.
    Everything,
    /// The hub drains: what their drivers would not repeat at another hub by themselves.
    Unrepeatable,
    /// The hub is about to end: nothing.
    Nothing,
}

/// Whether the command is a hello, by any of its names.
pub(super) fn is_hello(name: &str) -> bool {
    matches!(name, "hello" | "isMaster" | "ismaster")
}

/// The reply to a hello, but for what logins add.
pub(super) fn hello(facts: &Facts, name: &str, body: &RawDocument, connection: i64) -> Result<RawDocumentBuf, Refusal> {
    if !body.get_bool("loadBalanced").unwrap_or_default() {
        let message = "this is a hub, which shares the connections of many clients; add loadBalanced=true to the connection \
                       string";
        return Err(Refusal::new(369, "LoadBalancerSupportMismatch", message));
    }
    let limits = Limits::DEFAULT;
    let size = |size: u32| i32::try_from(size).unwrap_or(i32::MAX);
    let mut reply = RawDocumentBuf::new();
    if body.get_bool("helloOk").unwrap_or_default() {
        reply.append(cstr!("helloOk"), true);
    }
    match name {
        "hello" => reply.append(cstr!("isWritablePrimary"), true),
        _ => reply.append(cstr!("ismaster"), true),
    }
    reply.append(cstr!("msg"), "isdbgrid");
    reply.append(cstr!("maxBsonObjectSize"), size(limits.max_document_size));
    reply.append(cstr!("maxMessageSizeBytes"), size(limits.max_message_size));
    reply.append(cstr!("maxWriteBatchSize"), size(limits.max_write_batch));
    reply.append(cstr!("logicalSessionTimeoutMinutes"), 30);
    reply.append(cstr!("connectionId"), connection);
    reply.append(cstr!("minWireVersion"), 0);
    reply.append(cstr!("maxWireVersion"), facts.max_wire_version);
    reply.append(cstr!("readOnly"), false);
    reply.append(cstr!("serviceId"), bson::oid::ObjectId::from_bytes(facts.service.0));
    // The same for every name, so that it does not tell which users there are.
    if facts.has_users && body.get_str("saslSupportedMechs").is_ok() {
        let mut mechanisms = RawArrayBuf::new();
        ["SCRAM-SHA-1", "SCRAM-SHA-256"].into_iter().for_each(|name| mechanisms.push(name));
        reply.append(cstr!("saslSupportedMechs"), mechanisms);
    }
    Ok(reply)
}
