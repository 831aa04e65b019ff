//! Greetings and logins on a connection.

use core::time::Duration;
use std::sync::Arc;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use cmap_core::wire::CompressorId;

use super::super::common::lock;
use super::super::doors::Full;
use super::super::greeting::{self, Begins};
use super::super::login::{self, Next};
use super::super::refusal::Refusal;
use super::super::request::Request;
use super::{LATE, Line, Surroundings};
use crate::users::canonical;

impl Line {
    pub(super) fn hello(
        &mut self,
        request: &Request,
        around: &mut Surroundings<'_>,
    ) -> Result<RawDocumentBuf, Refusal> {
        let body = request.body();
        // It says so once: later hellos need not.
        let mut reply = match (greeting::hello(&around.facts, &request.name, body, self.number), self.is_greeted) {
            (Ok(reply), _) => reply,
            (Err(refusal), false) => return Err(refusal),
            (Err(_), true) => {
                let mut said = body.to_owned();
                said.append(cstr!("loadBalanced"), true);
                greeting::hello(&around.facts, &request.name, &said, self.number)?
            }
        };
        if let Ok(names) = body.get_array("compression") {
            let names =
                names.into_iter().filter_map(Result::ok).filter_map(|name| CompressorId::from_name(name.as_str()?));
            let common: Vec<_> = names.filter(|id| around.compressors.contains(id)).collect();
            let mut shared = RawArrayBuf::new();
            for id in common {
                shared.push(id.name());
                if let Some(agreed) = self.agreed.get_mut(usize::from(id.id())) {
                    *agreed = true;
                }
            }
            reply.append(cstr!("compression"), shared);
        }
        if let Ok(first) = body.get_document("speculativeAuthenticate")
            && self.user.is_none()
            && around.facts.has_users
            // A fault is no error of the hello (SRV-6).
            && let Some(step) = self.start_ahead(first, around)
        {
            let first = self.step(step, around)?;
            reply.append(cstr!("speculativeAuthenticate"), first);
        }
        if !self.is_greeted {
            self.late_until = (around.facts.begins != Begins::Everything).then(|| request.arrived + LATE);
            self.metadata = body.get_document("client").ok().map(RawDocument::to_owned);
        }
        self.is_greeted = true;
        Ok(reply)
    }

    /// The first message of a login that came with the hello, if it is right.
    fn start_ahead(&mut self, first: &RawDocument, around: &mut Surroundings<'_>) -> Option<login::Step> {
        let database = first.get_str("db").unwrap_or_default();
        if first.get("authenticate").is_ok_and(|name| name.is_some()) {
            // It need not name its database.
            return self.log_in_by_certificate(login::EXTERNAL, first, around).ok();
        }
        first.get("saslStart").ok()??;
        let step = login::start(around.users, database, first, (around.nonce)()?).ok()?;
        self.tried = login::name(first);
        Some(step)
    }

    /// `authenticate`: the certificate that the client has shown is that of a user (AUTH-19).
    pub(super) fn log_in_by_certificate(
        &mut self,
        database: &str,
        body: &RawDocument,
        around: &Surroundings<'_>,
    ) -> Result<login::Step, Refusal> {
        if body.get_str("mechanism").ok() != Some("MONGODB-X509") || database != login::EXTERNAL {
            let message = "the hub knows the mechanisms SCRAM-SHA-256, SCRAM-SHA-1 and, on $external, MONGODB-X509; choose one of them";
            return Err(Refusal::new(334, "MechanismUnavailable", message));
        }
        self.tried = self.certificate.as_ref().map(|certificate| certificate.subject.clone());
        let certificate = self.certificate.as_ref().filter(|certificate| certificate.is_trusted());
        let subject = &*certificate.ok_or_else(Refusal::authentication_failed)?.subject;
        // A name is one more claim, and not needed.
        let is_another = body.get_str("user").is_ok_and(|claimed| canonical(claimed) != subject);
        let user = around.users.of_certificate(subject).filter(|_| !is_another);
        let user = user.ok_or_else(Refusal::authentication_failed)?;
        Ok(login::Step { reply: login::certificate_reply(subject), next: Next::Is(Some(Arc::clone(user))) })
    }

    pub(super) fn begin_login(&self, around: &Surroundings<'_>) -> Result<(), Refusal> {
        if !self.is_greeted {
            return Err(Refusal::new(9, "FailedToParse", "the first command of a connection is a hello"));
        }
        if !around.facts.has_users {
            return Err(Refusal::authentication_failed());
        }
        if self.user.is_some() {
            return Err(Refusal::new(17, "ProtocolError", "the connection has logged in; open another one"));
        }
        Ok(())
    }

    pub(super) fn step(&mut self, step: login::Step, around: &mut Surroundings<'_>) -> Result<RawDocumentBuf, Refusal> {
        match step.next {
            Next::Goes(conversation) => self.conversation = Some(conversation),
            Next::Is(user) => {
                let user = user.ok_or_else(Refusal::authentication_failed)?;
                // A reload may have come in between.
                let is_valid = around.users.get(&user.name).is_some_and(|now| now.is_proven_as(&user));
                if !is_valid {
                    return Err(Refusal::authentication_failed());
                }
                lock(around.common).doors.log_in(&user.name, around.users).map_err(door_refusal)?;
                self.user = Some(Arc::clone(&user.name));
                self.login = Some(user);
            }
        }
        Ok(step.reply)
    }

    pub(super) fn status(&self) -> RawDocumentBuf {
        let mut users = RawArrayBuf::new();
        if let Some(name) = &self.user {
            let mut user = RawDocumentBuf::new();
            user.append(cstr!("user"), &**name);
            user.append(cstr!("db"), "admin");
            users.push(user);
        }
        let mut info = RawDocumentBuf::new();
        info.append(cstr!("authenticatedUsers"), users);
        info.append(cstr!("authenticatedUserRoles"), RawArrayBuf::new());
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("authInfo"), info);
        reply
    }
}

fn door_refusal(full: Full) -> Refusal {
    let whose = match full {
        Full::Hub => "the hub has",
        Full::Address => "the address has",
        Full::User => "the user has",
        Full::Group => "the user's group has",
        Full::Strangers | Full::StrangersOfAddress => "clients that have not logged in have",
    };
    Refusal::overloaded(format!("{whose} too many connections to this hub"), Duration::from_millis(500))
}

pub(super) fn no_random_bits() -> Refusal {
    Refusal::new(8, "UnknownError", "the hub's system gives no random bits, of which a login needs some")
}
