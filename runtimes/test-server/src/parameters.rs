//! `getParameter` and `setParameter`: the parameters that clients' test suites read, and those of `ingress`.

use std::collections::BTreeMap;

use bson::{RawArrayBuf, RawBson, RawDocumentBuf};
use cmap_core::time::Instant;

use super::document::document;
use super::failure::{Outcome, fail};
use super::ingress::Ingress;
use super::request::{Arguments, Request, append};
use super::sasl::MECHANISMS;
use crate::ServerVersion;
use crate::store::{CommandFailure, code};

/// The parameters that nobody can set while MongoDB runs, either.
const FIXED: [&str; 3] = ["authenticationMechanisms", "enableTestCommands", "featureCompatibilityVersion"];

/// The parameters that could be set while MongoDB runs, but not here.
const UNSUPPORTED: [&str; 2] = ["scramIterationCount", "scramSHA256IterationCount"];

/// The parameters and their values.
#[derive(Debug)]
pub(super) struct Parameters {
    values: BTreeMap<&'static str, RawBson>,
}

impl Parameters {
    pub(super) fn new(iterations: (u32, u32), version: ServerVersion) -> Self {
        let mut mechanisms = RawArrayBuf::new();
        MECHANISMS.iter().for_each(|name| mechanisms.push(*name));
        let count = |iterations: u32| RawBson::Int32(i32::try_from(iterations).unwrap_or(i32::MAX));
        let version = document! { "version": version.name() };
        Self {
            values: BTreeMap::from([
                ("authenticationMechanisms", RawBson::Array(mechanisms)),
                ("enableTestCommands", RawBson::Boolean(true)),
                ("featureCompatibilityVersion", RawBson::Document(version)),
                ("logLevel", RawBson::Int32(0)),
                ("notablescan", RawBson::Boolean(false)),
                ("quiet", RawBson::Boolean(false)),
                ("requireApiVersion", RawBson::Boolean(false)),
                ("scramIterationCount", count(iterations.0)),
                ("scramSHA256IterationCount", count(iterations.1)),
            ]),
        }
    }

    /// Whether every command has to declare the version of the API.
    pub(super) fn require_api_version(&self) -> bool {
        self.values.get("requireApiVersion").is_some_and(|value| matches!(value, RawBson::Boolean(true)))
    }

    /// `getParameter`: all, or those that are named.
    pub(super) fn get(&self, ingress: &Ingress, request: &Request<'_>) -> Outcome {
        let wanted = request.arguments.get(request.name);
        let all = wanted.is_some_and(|value| {
            value.as_str() == Some("*") || value.as_document().is_some_and(|how| Arguments(how).flag("allParameters"))
        });
        let mut found = RawDocumentBuf::new();
        let ingress = ingress.parameters();
        let values = self.values.iter().map(|(name, value)| (*name, value));
        for (name, value) in values.chain(ingress.iter().map(|(name, value)| (*name, value))) {
            if all || request.arguments.get(name).is_some() {
                append(&mut found, name, value.clone());
            }
        }
        match found.is_empty() {
            true => Err(fail(72, "no option found to get")),
            false => Ok(found),
        }
    }

    /// `setParameter`.
    pub(super) fn set(&mut self, now: Instant, ingress: &mut Ingress, request: &Request<'_>) -> Outcome {
        let mut was = RawDocumentBuf::new();
        for (name, old) in ingress.parameters() {
            if let Some(value) = request.arguments.get(name) {
                ingress.set(now, name, &RawBson::from(value))?;
                was = document! { "was": old };
            }
        }
        for (name, slot) in &mut self.values {
            if let Some(value) = request.arguments.get(name) {
                if FIXED.contains(name) {
                    return Err(fail(code::ILLEGAL_OPERATION, format!("not allowed to change [{name}] at runtime")));
                }
                if UNSUPPORTED.contains(name) {
                    return Err(CommandFailure::not_supported(&format!("to set {name} at runtime")));
                }
                let is_switch = matches!(slot, RawBson::Boolean(_));
                let value = if is_switch { request.arguments.flag(name).into() } else { RawBson::from(value) };
                was = document! { "was": std::mem::replace(slot, value) };
            }
        }
        match was.is_empty() {
            true => {
                let name = request.arguments.names().nth(1).unwrap_or_default();
                let message = format!("attempted to set unrecognized parameter [{name}], use help:true to see options");
                Err(fail(72, message))
            }
            false => Ok(was),
        }
    }
}
