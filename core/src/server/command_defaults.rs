//! The client's read concern, write concern and read preference, for commands that take them.

use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, cstr};

use crate::connection::{Addition, Command, Outline, Peer, Role};
use crate::options::{ClientOptions, ReadMode, ReadPreference, W, WriteConcern};
use crate::wire::integer;

/// What a client adds to the commands of its user.
#[derive(Clone, Debug)]
pub struct CommandDefaults {
    read_concern: Option<RawDocumentBuf>,
    write_concern: Option<RawDocumentBuf>,
    /// The write concern where another limit takes the place of its own (CSOT-3).
    write_concern_without_timeout: Option<RawDocumentBuf>,
    read_preference: Option<ReadPreference>,
    is_direct: bool,
}

impl CommandDefaults {
    /// Takes the defaults from a client's options; `None` if they set none.
    pub fn of_client(options: &ClientOptions) -> Option<Self> {
        let read_concern = options.read_concern_level.as_deref().map(|level| {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("level"), level);
            document
        });
        // CSOT-3: timeoutMS replaces wTimeoutMS.
        let write_concern = write_concern_document(&options.write_concern, options.timeout.is_none());
        let write_concern_without_timeout = write_concern_document(&options.write_concern, false);
        let is_direct = options.direct_connection == Some(true);
        // Only a direct connection has to say that the primary is preferred (SEL-36).
        let is_sent = is_direct || options.read_preference.mode() != ReadMode::Primary;
        let read_preference = is_sent.then(|| options.read_preference.clone());
        let is_any = read_concern.is_some() || write_concern.is_some() || read_preference.is_some();
        is_any.then_some(Self {
            read_concern,
            write_concern,
            write_concern_without_timeout,
            read_preference,
            is_direct,
        })
    }

    /// Whether the client talks to one server, whatever that is.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The client's read preference; `None` if it has to be said nowhere.
    pub fn read_preference(&self) -> Option<&ReadPreference> {
        self.read_preference.as_ref()
    }

    /// The client's read preference, if it is not the primary.
    pub fn reads_elsewhere(&self) -> Option<&ReadPreference> {
        self.read_preference.as_ref().filter(|preference| preference.mode() != ReadMode::Primary)
    }

    /// The read concern that goes along with the command, if one does.
    pub fn read_concern(&self, command: &Outline<'_>) -> Option<&RawDocument> {
        self.read_concern.as_deref().filter(|_| command.takes(Addition::ReadConcern))
    }

    /// The write concern that goes along with the command, if one does: without `wtimeout` where the command `has_limit` of its
    /// own (CSOT-3).
    pub fn write_concern(&self, command: &Outline<'_>, has_limit: bool) -> Option<&RawDocument> {
        let concern = if has_limit { &self.write_concern_without_timeout } else { &self.write_concern };
        concern.as_deref().filter(|_| command.takes(Addition::WriteConcern))
    }
}

/// Whether a command wants a reply, and its write concern, or else that of the client, is not `w: 0`.
pub fn is_acknowledged(command: &Command<'_>, outline: &Outline<'_>, defaults: Option<&CommandDefaults>) -> bool {
    command.acknowledged && !write_concern(outline, defaults).is_some_and(wants_no_reply)
}

/// The write concern of a command: its own, or else that of the client.
pub fn write_concern<'a>(outline: &Outline<'a>, defaults: Option<&'a CommandDefaults>) -> Option<&'a RawDocument> {
    outline.write_concern.or_else(|| defaults?.write_concern(outline, true))
}

/// Whether a write concern is `w: 0`.
pub fn wants_no_reply(concern: &RawDocument) -> bool {
    concern.get("w").ok().flatten().and_then(integer) == Some(0)
}

/// A write concern as it is sent; `None` if it says nothing. Where it `has_timeout`, its `wtimeout` is sent, too.
pub fn write_concern_document(concern: &WriteConcern, has_timeout: bool) -> Option<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    match &concern.w {
        Some(W::Members(members)) => document.append(cstr!("w"), i32::try_from(*members).unwrap_or(i32::MAX)),
        Some(W::Named(name)) => document.append(cstr!("w"), name.as_str()),
        None => {}
    }
    if let Some(journal) = concern.journal {
        document.append(cstr!("j"), journal);
    }
    if let Some(timeout) = concern.timeout.filter(|timeout| has_timeout && *timeout > Duration::ZERO) {
        // Zero would be no limit.
        document.append(cstr!("wtimeout"), i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1));
    }
    (!document.is_empty()).then_some(document)
}

/// `$readPreference` for the server of a connection (SEL-34, SEL-35, SEL-36): a standalone has no members to choose from, a member
/// that is talked to directly serves reads whatever it is, and elsewhere the primary is what a server assumes.
pub fn sent_read_preference(preference: &ReadPreference, server: Peer, is_direct: bool) -> Option<RawDocumentBuf> {
    let routes = server.is_load_balanced || server.role == Role::Mongos;
    if !routes && server.role == Role::Standalone {
        return None;
    }
    let is_primary = preference.mode() == ReadMode::Primary;
    let mode = if is_primary && is_direct && !routes { ReadMode::PrimaryPreferred } else { preference.mode() };
    (mode != ReadMode::Primary).then(|| preference.document(mode))
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;

    use bson::rawdoc;

    use super::*;

    fn defaults(options: &str) -> Option<CommandDefaults> {
        let (options, _) = ClientOptions::parse(&alloc::format!("mongodb://h/?{options}")).unwrap();
        CommandDefaults::of_client(&options)
    }

    /// The write concern that goes along with an insert.
    fn concern(options: &str, has_limit: bool) -> Option<RawDocumentBuf> {
        let insert = rawdoc! { "insert": "c" };
        let outline = Outline::of(&Command::new("db", &insert));
        defaults(options)?.write_concern(&outline, has_limit).map(ToOwned::to_owned)
    }

    #[test]
    fn a_write_concern_has_a_limit_of_a_millisecond_at_least() {
        let concern = WriteConcern { timeout: Some(Duration::from_micros(500)), ..WriteConcern::default() };

        assert_eq!(write_concern_document(&concern, true), Some(rawdoc! { "wtimeout": 1_i64 }));
        assert_eq!(write_concern_document(&concern, false), None);
    }

    #[test]
    fn every_limit_of_an_operation_replaces_w_timeout_ms_csot_3() {
        let w5 = Some(rawdoc! { "w": 5 });

        assert_eq!(concern("w=5&wTimeoutMS=50", false), Some(rawdoc! { "w": 5, "wtimeout": 50_i64 }));
        assert_eq!(concern("w=5&wTimeoutMS=50", true), w5, "a limit of the operation's own");
        assert_eq!(concern("w=5&wTimeoutMS=50&timeoutMS=9", false), w5);
        assert_eq!(concern("w=5&wTimeoutMS=50&timeoutMS=0", false), w5);
        assert_eq!(concern("wTimeoutMS=50", true), None);
    }

    #[test]
    fn a_write_concern_of_the_client_s_counts_as_the_command_s() {
        let insert = rawdoc! { "insert": "c" };
        let own = rawdoc! { "insert": "c", "writeConcern": { "w": 1 } };
        let unacknowledged = defaults("w=0");
        let is_acknowledged = |body: &RawDocument| {
            let command = Command::new("db", body);
            super::is_acknowledged(&command, &Outline::of(&command), unacknowledged.as_ref())
        };

        assert!(!is_acknowledged(&insert) && is_acknowledged(&own));
    }

    #[test]
    fn options_that_say_nothing_of_this_cost_nothing() {
        assert!(defaults("maxPoolSize=5").is_none());
    }
}
