//! The identity of a client: from its first hello, its certificate, and its logins.

use super::config::Peer;
use super::sasl::Conversation;
use super::users::UserName;

/// One connection's other end.
#[derive(Debug)]
pub(super) struct Identity {
    /// The server's number for the connection.
    pub(super) connection_id: i64,
    /// Its address and its certificate.
    pub(super) peer: Peer,
    /// Whether it has said hello.
    pub(super) is_known: bool,
    /// The application's name in the metadata of its first hello.
    pub(super) app_name: Option<String>,
    /// The users it logged in as: one for each database.
    logins: Vec<UserName>,
    /// A login in progress.
    pub(super) conversation: Option<Conversation>,
    /// Whether its connection must be closed instead of an answer.
    pub(super) has_ended: bool,
}

impl Identity {
    pub(super) fn new(connection_id: i64, peer: Peer) -> Self {
        let (is_known, has_ended) = (false, false);
        Self { connection_id, peer, is_known, app_name: None, logins: Vec::new(), conversation: None, has_ended }
    }

    /// The number of its connection.
    pub(super) fn number(&self) -> u64 {
        self.connection_id.unsigned_abs()
    }

    pub(super) fn is_logged_in(&self) -> bool {
        !self.logins.is_empty()
    }

    /// Whether it may give commands that are not for everybody.
    pub(super) fn may_act(&self) -> bool {
        self.is_logged_in() || self.peer.is_operator
    }

    pub(super) fn logins(&self) -> &[UserName] {
        &self.logins
    }

    /// A login has succeeded. It replaces another on the same database.
    pub(super) fn log_in(&mut self, user: UserName) {
        self.log_out(&user.database);
        self.logins.push(user);
    }

    pub(super) fn log_out(&mut self, database: &str) {
        self.logins.retain(|login| login.database != database);
    }
}
