//! What a command says itself, read in one pass.

use bson::RawDocument;

use super::Command;
use crate::wire::document::elements;

/// BSON's type of a document.
const DOCUMENT: u8 = 0x03;

/// A command's name, and which of the fields that a client adds it has already, among its own or [along with
/// it](Command::fields).
#[derive(Clone, Copy, Debug)]
pub struct Outline<'c> {
    /// The command itself.
    pub body: &'c RawDocument,
    /// The name: its first key.
    pub name: &'c str,
    /// The `readConcern` in its body.
    pub read_concern: Option<&'c RawDocument>,
    /// The `writeConcern` in its body.
    pub write_concern: Option<&'c RawDocument>,
    /// A bit for each [`ClientField`].
    fields: u8,
}

/// A field that a client adds to a command, unless it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClientField {
    /// `lsid`.
    SessionId,
    /// `txnNumber`.
    TransactionNumber,
    /// `autocommit`, which all commands of a transaction have.
    Autocommit,
    /// `$clusterTime`.
    ClusterTime,
    /// `readConcern`.
    ReadConcern,
    /// `writeConcern`.
    WriteConcern,
    /// `$readPreference`.
    ReadPreference,
    /// `maxTimeMS`.
    MaxTime,
}

impl<'c> Outline<'c> {
    /// Reads a command.
    pub fn of(command: &Command<'c>) -> Self {
        let body = command.body;
        let mut outline = Self { body, name: "", read_concern: None, write_concern: None, fields: 0 };
        let mut elements = elements(body).map_while(Result::ok);
        if let Some(first) = elements.next() {
            outline.name = core::str::from_utf8(first.name).unwrap_or_default();
        }
        for element in elements {
            let Some(field) = ClientField::named(element.name) else { continue };
            outline.fields |= field.bit();
            let document = || RawDocument::from_bytes(element.value).ok().filter(|_| element.tag == DOCUMENT);
            if field == ClientField::ReadConcern {
                outline.read_concern = document();
            } else if field == ClientField::WriteConcern {
                outline.write_concern = document();
            }
        }
        for field in command.fields {
            field.read_names(|name| outline.fields |= ClientField::named(name).map_or(0, ClientField::bit));
        }
        outline
    }

    /// Whether the field is there.
    pub fn has(&self, field: ClientField) -> bool {
        self.fields & field.bit() != 0
    }
}

impl ClientField {
    fn bit(self) -> u8 {
        1 << self as u8
    }

    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"lsid" => Self::SessionId,
            b"txnNumber" => Self::TransactionNumber,
            b"autocommit" => Self::Autocommit,
            b"$clusterTime" => Self::ClusterTime,
            b"readConcern" => Self::ReadConcern,
            b"writeConcern" => Self::WriteConcern,
            b"$readPreference" => Self::ReadPreference,
            b"maxTimeMS" => Self::MaxTime,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::wire::Field;

    #[test]
    fn a_field_is_found_in_the_command_and_along_with_it() {
        let body = rawdoc! { "find": "c", "readConcern": { "level": "local" }, "maxTimeMS": 5 };
        let along = rawdoc! { "lsid": {}, "writeConcern": { "w": 1 } };
        let command = Command { fields: &[Field::All(&along)], ..Command::new("db", &body) };

        let outline = Outline::of(&command);

        assert_eq!(outline.name, "find");
        assert_eq!(outline.read_concern, Some(&*rawdoc! { "level": "local" }));
        assert_eq!(outline.write_concern, None, "it is not the command's own");
        use ClientField::{Autocommit, ClusterTime, MaxTime, ReadConcern, SessionId, WriteConcern};
        assert!([SessionId, WriteConcern, ReadConcern, MaxTime].iter().all(|field| outline.has(*field)));
        assert!(![Autocommit, ClusterTime].iter().any(|field| outline.has(*field)));
    }

    #[test]
    fn a_concern_that_is_no_document_is_there_and_says_nothing() {
        let body = rawdoc! { "insert": "c", "writeConcern": "majority" };

        let outline = Outline::of(&Command::new("db", &body));

        assert!(outline.has(ClientField::WriteConcern));
        assert_eq!(outline.write_concern, None);
    }

    #[test]
    fn an_empty_command_has_no_name() {
        assert_eq!(Outline::of(&Command::new("db", &rawdoc! {})).name, "");
    }
}
