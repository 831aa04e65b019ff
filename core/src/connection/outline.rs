//! What a command says itself, read in one pass: its body, the [fields](Command::fields) that go along and its document sequences.

use bson::{RawBsonRef, RawDocument};

use super::Command;
use super::command_traits::{Addition, CommandTraits, Effect, Items};
use crate::wire::Sequence;
use crate::wire::document::elements;

/// A command's name, what it takes from its client, and which of the fields that a client adds it has already.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'c> {
    /// The command itself.
    pub body: &'c RawDocument,
    /// The name: its first key.
    pub name: &'c str,
    /// Its `readConcern`.
    pub read_concern: Option<&'c RawDocument>,
    /// Its `writeConcern`.
    pub write_concern: Option<&'c RawDocument>,
    sequences: &'c [Sequence<'c>],
    traits: CommandTraits,
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
        let mut elements = elements(body).map_while(Result::ok);
        let name = elements.next().and_then(|first| core::str::from_utf8(first.name).ok()).unwrap_or_default();
        let traits = CommandTraits::of(name, body);
        let sequences = command.sequences;
        let mut outline = Self { body, name, read_concern: None, write_concern: None, sequences, traits, fields: 0 };
        for element in elements {
            outline.note(element.name, || element.document());
        }
        for field in command.fields {
            field.read(|name, document| outline.note(name, || document));
        }
        outline
    }

    /// Whether the field is there.
    pub fn has(&self, field: ClientField) -> bool {
        self.fields & field.bit() != 0
    }

    /// Whether the command takes this from its client.
    pub fn takes(&self, addition: Addition) -> bool {
        self.traits.takes(addition)
    }

    /// Whether the command writes its result to a collection: an aggregation with `$out` or `$merge`, or a `mapReduce`.
    pub fn writes_result(&self) -> bool {
        self.effect() == Effect::WritesResult
    }

    /// Whether the command only reads, as far as is known.
    pub fn reads(&self) -> bool {
        matches!(self.effect(), Effect::Reads | Effect::ReadsOnce)
    }

    pub(crate) fn effect(&self) -> Effect {
        self.traits.effect
    }

    /// Whether one of its items, in the body or in a sequence, concerns several documents. One that cannot be read may.
    pub(crate) fn concerns_several(&self, Items { field, several }: Items) -> bool {
        let in_body = match self.body.get(field) {
            Ok(items) => items.and_then(RawBsonRef::as_array).into_iter().flatten().any(|item| {
                // Of another type, it is the server's to refuse.
                item.map_or(true, |item| item.as_document().is_some_and(|item| several.is_said_by(item)))
            }),
            Err(_) => true,
        };
        let mut sequences = self.sequences.iter().filter(|sequence| sequence.identifier == field);
        in_body || sequences.any(|sequence| sequence.documents().any(|item| several.is_said_by(item)))
    }

    fn note(&mut self, name: &[u8], document: impl FnOnce() -> Option<&'c RawDocument>) {
        let Some(field) = ClientField::named(name) else { return };
        self.fields |= field.bit();
        if field == ClientField::ReadConcern {
            self.read_concern = document();
        } else if field == ClientField::WriteConcern {
            self.write_concern = document();
        }
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
        let (lsid, concern) = (rawdoc! { "lsid": {} }, rawdoc! { "w": 1 });
        let along = [Field::All(&lsid), Field::Document("writeConcern", &concern)];
        let command = Command { fields: &along, ..Command::new("db", &body) };

        let outline = Outline::of(&command);

        assert_eq!(outline.name, "find");
        assert_eq!(outline.read_concern, Some(&*rawdoc! { "level": "local" }));
        assert_eq!(outline.write_concern, Some(&*concern));
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
