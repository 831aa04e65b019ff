//! Logging in: SCRAM, PLAIN and MONGODB-OIDC by `saslStart` and `saslContinue`, MONGODB-X509 by `authenticate`, and all of them
//! speculatively, inside a hello (AUTH-10, OIDC-6).
//!
//! Whatever the fault of a login, the client learns only that it failed.

use std::str;

use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawDocument, RawDocumentBuf};
use cmap_core::connection::auth::{MAX_MESSAGE, Nonce, ScramHash, ScramLogin, ScramVerifier};
use cmap_core::random::Random;

use super::document::document;
use super::failure::{Outcome, authentication_failed, fail};
use super::identity::Identity;
use super::request::Arguments;
use super::users::{EXTERNAL, UserName, Users, bytes};
use crate::store::CommandFailure;

/// The number of every conversation: a connection has one at a time.
const CONVERSATION_ID: i32 = 1;

/// The supported mechanisms.
pub(super) const MECHANISMS: [&str; 5] = ["MONGODB-OIDC", "MONGODB-X509", "PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"];

/// A SCRAM login between two of its messages.
#[derive(Debug)]
pub(super) enum Conversation {
    /// The client's proof comes next.
    Proof { verifier: Box<ScramVerifier>, user: UserName, skip_empty_exchange: bool },
    /// The proof was right; the client, an older one, sends one more, empty message (AUTH-15).
    Empty { user: UserName },
}

/// Carries out logins.
pub(super) struct Sasl<'a> {
    pub(super) users: &'a Users,
    pub(super) random: &'a mut Random,
}

impl Sasl<'_> {
    /// `saslStart`.
    pub(super) fn start(&mut self, identity: &mut Identity, database: &str, arguments: Arguments<'_>) -> Outcome {
        identity.conversation = None;
        let mechanism = arguments.text("mechanism")?.ok_or_else(|| missing("saslStart.mechanism"))?;
        let payload = arguments.binary("payload")?.ok_or_else(|| missing("saslStart.payload"))?;
        let hash = match mechanism {
            "SCRAM-SHA-1" => ScramHash::Sha1,
            "SCRAM-SHA-256" => ScramHash::Sha256,
            "PLAIN" if database == EXTERNAL => return self.plain(identity, payload),
            "MONGODB-OIDC" if database == EXTERNAL => return self.token(identity, payload),
            _ => {
                let message =
                    format!("Received authentication for mechanism {mechanism} which is unknown or not enabled");
                return Err(fail(334, message));
            }
        };
        let login = ScramLogin::parse(payload).map_err(|_| authentication_failed())?;
        let user = UserName::new(database, login.username());
        let account = self.users.get(&user).ok_or_else(authentication_failed)?;
        let stored = match hash {
            ScramHash::Sha1 => &account.sha_1,
            ScramHash::Sha256 => &account.sha_256,
        };
        let stored = stored.as_ref().ok_or_else(authentication_failed)?;
        let nonce = Nonce::from_random(bytes(self.random));
        let (verifier, first) = login.challenge(&nonce, stored);
        let options = arguments.document("options")?;
        let skip_empty_exchange = options.is_some_and(|options| options.flag("skipEmptyExchange"));
        identity.conversation = Some(Conversation::Proof { verifier: Box::new(verifier), user, skip_empty_exchange });
        Ok(step(first.as_bytes(), false))
    }

    /// `saslContinue`.
    pub(super) fn go_on(identity: &mut Identity, arguments: Arguments<'_>) -> Outcome {
        let payload = arguments.binary("payload")?.ok_or_else(|| missing("saslContinue.payload"))?;
        let id = arguments.integer("conversationId")?;
        let Some(conversation) = identity.conversation.take() else {
            return Err(fail(17, "No SASL session state found"));
        };
        if id != Some(CONVERSATION_ID.into()) {
            return Err(fail(17, "sasl: Mismatched conversation id"));
        }
        match conversation {
            Conversation::Proof { verifier, user, skip_empty_exchange } => {
                let last = verifier.verify(payload).map_err(|_| authentication_failed())?;
                match skip_empty_exchange {
                    true => identity.log_in(user),
                    false => identity.conversation = Some(Conversation::Empty { user }),
                }
                Ok(step(last.as_bytes(), skip_empty_exchange))
            }
            Conversation::Empty { user } if payload.is_empty() => {
                identity.log_in(user);
                Ok(step(&[], true))
            }
            Conversation::Empty { .. } => Err(authentication_failed()),
        }
    }

    /// `authenticate`, which supports only MONGODB-X509 (AUTH-19).
    pub(super) fn authenticate(&self, identity: &mut Identity, database: &str, arguments: Arguments<'_>) -> Outcome {
        match arguments.text("mechanism")? {
            Some("MONGODB-X509") if database == EXTERNAL => {}
            Some("MONGODB-X509") => {
                return Err(fail(17, "X.509 authentication must always use the $external database."));
            }
            mechanism => {
                let message = format!("Unsupported mechanism: {}", mechanism.unwrap_or("MONGODB-CR"));
                return Err(fail(2, message));
            }
        }
        let Some(subject) = identity.peer.certificate_subject.as_deref() else {
            return Err(fail(18, "No verified subject name available from client"));
        };
        if arguments.text("user")?.is_some_and(|user| user != subject) {
            return Err(fail(18, "There is no x.509 client certificate matching the user."));
        }
        let user = UserName::new(EXTERNAL, subject);
        match self.users.get(&user) {
            // A user with a password would belong to another server, which asks for it.
            Some(account) if account.password.is_none() => {}
            Some(_) | None => return Err(authentication_failed()),
        }
        let reply = document! { "dbname": EXTERNAL, "user": subject };
        identity.log_in(user);
        Ok(reply)
    }

    /// Carries out a hello's `speculativeAuthenticate`. A failure is silent (SRV-6).
    pub(super) fn speculate(&mut self, identity: &mut Identity, first: Arguments<'_>) -> Option<RawDocumentBuf> {
        let database = first.text("db").ok()?;
        let outcome = match first.names().next()?.as_str() {
            "saslStart" => self.start(identity, database?, first),
            "authenticate" => self.authenticate(identity, database.unwrap_or(EXTERNAL), first),
            _ => return None,
        };
        outcome.ok()
    }

    /// MONGODB-OIDC, in one step (OIDC-7).
    fn token(&self, identity: &mut Identity, payload: &[u8]) -> Outcome {
        let token = RawDocument::from_bytes(payload).ok().and_then(|document| document.get_str("jwt").ok());
        let user = token.and_then(|token| self.users.with_token(token)).ok_or_else(authentication_failed)?;
        identity.log_in(user.clone());
        Ok(step(&[], true))
    }

    fn plain(&self, identity: &mut Identity, payload: &[u8]) -> Outcome {
        let (name, given) = plain_login(payload).ok_or_else(authentication_failed)?;
        let user = UserName::new(EXTERNAL, name);
        let password = self.users.get(&user).and_then(|account| account.password.as_ref());
        if password.is_none_or(|password| password.expose() != given) {
            return Err(authentication_failed());
        }
        identity.log_in(user);
        Ok(step(&[], true))
    }
}

/// The user name and the password of a PLAIN message (RFC 4616): `authzid NUL user NUL password`. An authorization identity
/// may repeat the user name, nothing else.
fn plain_login(payload: &[u8]) -> Option<(&str, &str)> {
    if payload.len() > MAX_MESSAGE {
        return None;
    }
    let mut fields = str::from_utf8(payload).ok()?.split('\0');
    let (identity, name, password) = (fields.next()?, fields.next()?, fields.next()?);
    let is_valid = fields.next().is_none() && !name.is_empty() && (identity.is_empty() || identity == name);
    is_valid.then_some((name, password))
}

fn step(payload: &[u8], done: bool) -> RawDocumentBuf {
    let payload = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: payload };
    document! { "conversationId": CONVERSATION_ID, "done": done, "payload": payload }
}

fn missing(field: &str) -> CommandFailure {
    fail(40414, format!("BSON field '{field}' is missing but a required field"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_is_read_as_it_was_written() {
        assert_eq!(plain_login(b"\0tim=,\0tanstaaftanstaaf"), Some(("tim=,", "tanstaaftanstaaf")));
        assert_eq!(plain_login(b"user\0user\0secret"), Some(("user", "secret")));
    }

    #[test]
    fn a_malformed_plain_message_is_no_login() {
        for payload in [
            &b""[..],
            b"\0user",
            b"\0user\0secret\0",
            b"\0\0secret",
            b"\0user\0\xff",
            &[b"\0user\0", &[b'a'; MAX_MESSAGE][..]].concat(),
            b"root\0user\0secret",
        ] {
            assert_eq!(plain_login(payload), None, "{}", String::from_utf8_lossy(payload));
        }
    }
}
