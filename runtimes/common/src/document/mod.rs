//! Documents as people have them: commands from values that serialise, and replies that become values; `replies` has those that
//! everybody reads.

mod replies;

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use bson::{Document, RawDocument, RawDocumentBuf};
use cmap_core::connection::Command;
use cmap_core::log::extended_json;
use serde::Serialize;
use serde::de::Deserialize;

pub use self::replies::{Counted, FoundAndModified, Written};
use crate::readable_debug::readable_debug;

/// What can be sent as a command: a [`RawDocument`] or a [`Document`], or a reference to any value that serialises as a
/// document. The name of the command must be its first field.
///
/// A `&RawDocument` is sent as it is, without a copy.
///
/// ```
/// use cmap_runtime::{CommandError, Connection, Runtime};
/// use cmap_runtime::bson::doc;
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Count<'a> {
///     count: &'a str,
///     limit: i64,
/// }
///
/// async fn count_twice<R: Runtime>(connection: &mut Connection<R>) -> Result<(), CommandError> {
///     connection.run_command("shop", &Count { count: "orders", limit: 10 }).await?;
///     connection.run_command("shop", doc! { "count": "orders", "limit": 10 }).await?;
///     Ok(())
/// }
/// ```
pub trait IntoCommand {
    /// The document to send.
    ///
    /// # Errors
    /// The value cannot be written as a document.
    fn into_command<'c>(self) -> Result<Cow<'c, RawDocument>, bson::error::Error>
    where
        Self: 'c;
}

impl IntoCommand for &RawDocument {
    fn into_command<'c>(self) -> Result<Cow<'c, RawDocument>, bson::error::Error>
    where
        Self: 'c,
    {
        Ok(Cow::Borrowed(self))
    }
}

impl IntoCommand for RawDocumentBuf {
    fn into_command<'c>(self) -> Result<Cow<'c, RawDocument>, bson::error::Error> {
        Ok(Cow::Owned(self))
    }
}

impl IntoCommand for Document {
    fn into_command<'c>(self) -> Result<Cow<'c, RawDocument>, bson::error::Error> {
        bson::serialize_to_raw_document_buf(&self).map(Cow::Owned)
    }
}

impl<T: Serialize> IntoCommand for &T {
    fn into_command<'c>(self) -> Result<Cow<'c, RawDocument>, bson::error::Error>
    where
        Self: 'c,
    {
        bson::serialize_to_raw_document_buf(self).map(Cow::Owned)
    }
}

/// What [`exchange`](crate::Connection::exchange) sends: a [`Command`] with all that it can say, or a database and a document
/// or value.
///
/// ```
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::{CommandError, Connection, Runtime};
///
/// async fn ping<R: Runtime>(connection: &mut Connection<R>) -> Result<(), CommandError> {
///     connection.exchange(("admin", doc! { "ping": 1 })).await.map(drop)
/// }
/// ```
pub trait IntoRequest {
    /// The command to send.
    ///
    /// # Errors
    /// The value cannot be written as a document.
    fn into_request<'c>(self) -> Result<Request<'c>, bson::error::Error>
    where
        Self: 'c;
}

/// A [`Command`] that may own its document.
#[derive(Debug)]
pub struct Request<'c>(Content<'c>);

#[derive(Debug)]
enum Content<'c> {
    Command(Command<'c>),
    /// A document for a database.
    Document(&'c str, Cow<'c, RawDocument>),
}

impl Request<'_> {
    /// An empty document, which is no command.
    pub(crate) fn empty() -> Self {
        Self(Content::Document("", Cow::Owned(RawDocumentBuf::new())))
    }

    pub(crate) fn command(&self) -> Command<'_> {
        match &self.0 {
            Content::Command(command) => *command,
            Content::Document(database, document) => Command::new(database, document),
        }
    }
}

impl IntoRequest for &Command<'_> {
    fn into_request<'c>(self) -> Result<Request<'c>, bson::error::Error>
    where
        Self: 'c,
    {
        Ok(Request(Content::Command(*self)))
    }
}

impl<C: IntoCommand> IntoRequest for (&str, C) {
    fn into_request<'c>(self) -> Result<Request<'c>, bson::error::Error>
    where
        Self: 'c,
    {
        let (database, command) = self;
        Ok(Request(Content::Document(database, command.into_command()?)))
    }
}

/// A server's reply: a [`RawDocument`], which may be lent by the connection. It shows as extended JSON.
#[derive(Clone, PartialEq)]
pub struct Reply<'a>(Cow<'a, RawDocument>);

/// A reply is not what its reader expected.
#[derive(thiserror::Error)]
#[error("the reply cannot be read as {expected}: {problem}")]
#[non_exhaustive]
pub struct ParseError {
    /// The name of the expected type.
    pub expected: &'static str,
    /// The first field that does not fit, and why.
    pub problem: bson::error::Error,
}

readable_debug!(ParseError);

impl<'a> Reply<'a> {
    pub(crate) fn borrowed(document: &'a RawDocument) -> Self {
        Self(Cow::Borrowed(document))
    }

    /// The reply as a value of one's own. Fields that the type does not know, such as `ok`, are ignored.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Connection, Error, Runtime};
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// struct Counted {
    ///     n: u64,
    /// }
    ///
    /// async fn orders<R: Runtime>(connection: &mut Connection<R>) -> Result<u64, Error> {
    ///     let counted: Counted = connection.run_command("shop", doc! { "count": "orders" }).await?.parse()?;
    ///     Ok(counted.n)
    /// }
    /// ```
    ///
    /// # Errors
    /// A field is missing, or has another type.
    pub fn parse<'r, T: Deserialize<'r>>(&'r self) -> Result<T, ParseError> {
        let parsed = bson::deserialize_from_slice(self.0.as_bytes());
        parsed.map_err(|problem| ParseError { expected: type_name::<T>(), problem })
    }

    /// The document itself, copied if the connection has lent it.
    pub fn into_document(self) -> RawDocumentBuf {
        self.0.into_owned()
    }

    /// The reply without a loan: its document is copied if the connection has lent it.
    pub fn into_owned(self) -> Reply<'static> {
        Reply(Cow::Owned(self.0.into_owned()))
    }
}

impl Deref for Reply<'_> {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        &self.0
    }
}

impl AsRef<RawDocument> for Reply<'_> {
    fn as_ref(&self) -> &RawDocument {
        &self.0
    }
}

impl PartialEq<RawDocumentBuf> for Reply<'_> {
    fn eq(&self, other: &RawDocumentBuf) -> bool {
        **self == **other
    }
}

impl From<Reply<'_>> for RawDocumentBuf {
    fn from(reply: Reply<'_>) -> Self {
        reply.into_document()
    }
}

impl fmt::Display for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&extended_json(&self.0))
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize)]
    struct Ping {
        ping: i32,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Found<'a> {
        name: &'a str,
    }

    fn command(command: impl IntoCommand) -> RawDocumentBuf {
        command.into_command().unwrap().into_owned()
    }

    #[test]
    fn a_command_is_written_in_any_of_its_forms() {
        let ping = rawdoc! { "ping": 1 };
        let borrowed: &RawDocument = &ping;

        for written in [
            command(Ping { ping: 1 }.as_command()),
            command(doc! { "ping": 1 }),
            command(&doc! { "ping": 1 }),
            command(ping.clone()),
            command(&ping),
            command(borrowed),
        ] {
            assert_eq!(written, ping);
        }
        assert!(
            matches!(borrowed.into_command(), Ok(Cow::Borrowed(same)) if std::ptr::eq(same, borrowed)),
            "it is not copied"
        );
    }

    impl Ping {
        fn as_command(&self) -> RawDocumentBuf {
            command(self)
        }
    }

    #[test]
    fn what_is_no_document_is_refused() {
        assert!((&5).into_command().is_err());
    }

    #[test]
    fn a_reply_becomes_a_value_without_a_copy_of_its_texts() {
        let document = rawdoc! { "name": "apple", "ok": 1.0 };
        let reply = Reply::borrowed(&document);

        assert_eq!(reply.parse::<Found<'_>>().unwrap(), Found { name: "apple" });
        assert_eq!(reply.get_str("name").unwrap(), "apple");
    }

    #[test]
    fn a_reply_that_does_not_fit_says_what_was_expected_and_where() {
        let document = rawdoc! { "ok": 1.0 };

        let error = Reply::borrowed(&document).parse::<Found<'_>>().unwrap_err();

        let text = error.to_string();
        assert!(text.contains("Found") && text.contains("missing field `name`"), "{text}");
        assert_eq!(format!("{error:?}"), text);
    }

    #[test]
    fn a_reply_shows_as_extended_json() {
        let document = rawdoc! { "n": 1, "pattern": bson::Regex { pattern: bson::cstr!("^a").into(), options: bson::cstr!("i").into() } };

        let shown = format!("{:?}", Reply::borrowed(&document));

        assert_eq!(shown, r#"{"n":1,"pattern":{"$regularExpression":{"pattern":"^a","options":"i"}}}"#);
    }
}
