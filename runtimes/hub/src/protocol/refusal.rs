//! The hub's own errors, in the form of a server's.

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;

use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use cmap_core::retry::ErrorLabel;

use super::names;
use super::request::{Part, Request};
use super::targets::Target;
use crate::users::is_known;

/// The label by which a driver begins a change stream anew (CS-10). It decides about nothing else.
pub(super) const RESUMABLE: &str = "ResumableChangeStreamError";

/// An error that the hub replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// MongoDB's code.
    pub code: i32,
    /// Its name.
    pub name: &'static str,
    /// What happened, why, what to do next.
    pub message: Cow<'static, str>,
    /// What a driver may do about it.
    pub labels: Vec<ErrorLabel>,
    /// Whether a driver begins a change stream anew after it: for getMores.
    pub resumes_change_streams: bool,
    /// The pause that drivers are asked to make before they try again, to be doubled with each retry.
    pub base_backoff: Option<Duration>,
}

impl Refusal {
    /// The code of what the user may not do.
    pub const UNAUTHORIZED: i32 = 13;

    /// An error without labels.
    pub fn new(code: i32, name: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            name,
            message: message.into(),
            labels: Vec::new(),
            resumes_change_streams: false,
            base_backoff: None,
        }
    }

    /// The user may not do that.
    pub fn unauthorized(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Self::UNAUTHORIZED, "Unauthorized", message)
    }

    /// The command's bytes are no documents in which every text is UTF-8.
    pub(super) fn invalid_bson(problem: &dyn fmt::Display) -> Self {
        let message = format!(
            "the command cannot be read ({problem}), so no rule can be applied to it; send texts in UTF-8, other bytes as binData"
        );
        Self::new(22, "InvalidBSON", message)
    }

    /// The rules forbid the command to the user.
    pub(super) fn forbidden(target: &Target) -> Self {
        let Target { database, collection, action } = target;
        if !is_known(action) {
            let action = names::shown(action);
            let message =
                format!("no such command: '{action}'; a hub passes on what it does not know where a rule names it");
            return Self::new(59, "CommandNotFound", message);
        }
        let (database, action) = (names::shown(database), names::shown(action));
        let place = match collection.as_str() {
            "" => format!("{database}"),
            collection => format!("{database}.{}", names::shown(collection)),
        };
        Self::unauthorized(format!("not authorized on {place} to execute command {{ {action} }}"))
    }

    /// Somebody has killed the operation.
    pub fn interrupted() -> Self {
        Self::new(11_601, "Interrupted", "the operation was interrupted by killOp")
    }

    /// A login failed, for whatever reason: the client learns only that.
    pub fn authentication_failed() -> Self {
        Self::new(18, "AuthenticationFailed", "Authentication failed.")
    }

    /// The client has no such cursor, which is also said of another's.
    pub fn cursor_not_found(cursor: i64) -> Self {
        Self::new(43, "CursorNotFound", format!("cursor id {cursor} not found on this connection"))
    }

    /// The hub has more to do than it may queue.
    pub fn overloaded(message: impl Into<Cow<'static, str>>, base_backoff: Duration) -> Self {
        let labels = vec![ErrorLabel::SystemOverloadedError, ErrorLabel::RetryableError];
        let refusal = Self::new(462, "IngressRequestRateLimitExceeded", message);
        Self { labels, base_backoff: Some(base_backoff), ..refusal }
    }

    /// No server upstream has carried the command out, or nobody knows whether one has. Not a code that speaks of the state of a
    /// server: a driver would clear its pool of connections to the hub.
    pub fn unreachable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(6, "HostUnreachable", message)
    }

    /// The hub ends, and the command was not sent. The driver closes its connections to this hub, and repeats the command at the hub that
    /// has taken over, if it can.
    pub(super) fn ending(request: &Request) -> Self {
        let refusal = Self::new(
            91,
            "ShutdownInProgress",
            "the hub ends, and has not sent the command; repeat it on another connection",
        );
        match request.part {
            // The transaction has its connection.
            Some(Part::Starts | Part::Continues) => refusal.with_label(ErrorLabel::TransientTransactionError),
            Some(Part::Ends) => refusal.with_label(ErrorLabel::RetryableWriteError),
            None => {
                let refusal = match request.number {
                    // It may be the repetition of one that was sent: that one's error counts.
                    Some(_) => {
                        let refusal = refusal.with_label(ErrorLabel::RetryableWriteError);
                        refusal.with_label(ErrorLabel::NoWritesPerformed)
                    }
                    None => refusal,
                };
                refusal.with_label(ErrorLabel::SystemOverloadedError).with_label(ErrorLabel::RetryableError)
            }
        }
    }

    /// The command's time was up before it was sent.
    pub fn max_time_expired(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(50, "MaxTimeMSExpired", message)
    }

    /// Adds an error label.
    #[must_use]
    pub fn with_label(mut self, label: ErrorLabel) -> Self {
        if !self.labels.contains(&label) {
            self.labels.push(label);
        }
        self
    }

    /// Lets a driver begin a change stream anew after it, if `is_so`.
    #[must_use]
    pub fn resuming_change_streams(self, is_so: bool) -> Self {
        Self { resumes_change_streams: is_so, ..self }
    }

    /// The reply that says so.
    pub fn reply(&self) -> RawDocumentBuf {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), &*self.message);
        reply.append(cstr!("code"), self.code);
        reply.append(cstr!("codeName"), self.name);
        let resumes = self.resumes_change_streams.then_some(RESUMABLE);
        let names: Vec<_> = self.labels.iter().map(|label| label.name()).chain(resumes).collect();
        if !names.is_empty() {
            let mut labels = RawArrayBuf::new();
            names.into_iter().for_each(|name| labels.push(name));
            reply.append(cstr!("errorLabels"), labels);
        }
        if let Some(base) = self.base_backoff {
            reply.append(cstr!("baseBackoffMS"), i32::try_from(base.as_millis()).unwrap_or(i32::MAX));
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn an_overload_says_that_and_when_to_try_again_x_135() {
        let reply = Refusal::overloaded("full", Duration::from_millis(50)).reply();

        assert_eq!(
            reply,
            rawdoc! {
                "ok": 0.0, "errmsg": "full", "code": 462, "codeName": "IngressRequestRateLimitExceeded",
                "errorLabels": ["SystemOverloadedError", "RetryableError"], "baseBackoffMS": 50,
            }
        );
    }

    #[test]
    fn what_is_forbidden_is_told_without_line_breaks_and_not_at_length_x_142() {
        let target = |collection: &str, action: &str| {
            let (database, collection, action) = ("shop".into(), collection.into(), action.into());
            Refusal::forbidden(&Target { database, collection, action }).message.into_owned()
        };

        assert_eq!(target("orders", "find"), "not authorized on shop.orders to execute command { find }");
        assert_eq!(target("", "find"), "not authorized on shop to execute command { find }");
        assert!(target("orders", "noSuchCommand").starts_with("no such command: 'noSuchCommand'; "));
        let forged = target("a\n2026-11-25 hangs up", "$out\n");
        assert_eq!(forged, "not authorized on shop.a\\n2026-11-25 hangs up to execute command { $out\\n }");
        assert!(target(&"\n".repeat(1_000_000), &"\n".repeat(1_000_000)).len() < 2_000);
    }

    #[test]
    fn an_unreachable_server_is_no_change_of_a_servers_state_x_134() {
        let refusal = Refusal::unreachable("not master, node is recovering");

        assert_eq!(cmap_core::server::StateChange::of(Some(refusal.code), &refusal.message), None);
    }
}
