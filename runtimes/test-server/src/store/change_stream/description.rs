//! `updateDescription`: how a document after an update differs from the one before.
//!
//! It is computed from both documents, so that it names the fields that differ, whichever operators changed them.

use std::collections::BTreeMap;

use bson::raw::CString;
use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::document::document;
use crate::store::arguments::{fields, values};
use crate::store::failure::CommandFailure;
use crate::store::work::{Work, weight};

/// A part of a path.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Field(&'a str),
    Index(usize),
}

/// The differences so far.
struct Differences<'w> {
    updated: RawDocumentBuf,
    removed: RawArrayBuf,
    truncated: RawArrayBuf,
    /// The parts of the paths that could be read in two ways.
    disambiguated: RawDocumentBuf,
    work: &'w Work,
}

/// How `after` differs from `before`. `disambiguates` adds the parts of paths with numbers or dots in fields' names.
pub(super) fn describe(
    before: &RawDocument,
    after: &RawDocument,
    disambiguates: bool,
    work: &Work,
) -> Result<RawDocumentBuf, CommandFailure> {
    let mut differences = Differences {
        updated: RawDocumentBuf::new(),
        removed: RawArrayBuf::new(),
        truncated: RawArrayBuf::new(),
        disambiguated: RawDocumentBuf::new(),
        work,
    };
    differences.of_documents(&mut Vec::new(), before, after)?;
    let Differences { updated, removed, truncated, disambiguated, .. } = differences;
    let mut description =
        document! { "updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated };
    if disambiguates {
        description.append(bson::cstr!("disambiguatedPaths"), disambiguated);
    }
    Ok(description)
}

impl Differences<'_> {
    fn of_documents<'a>(
        &mut self,
        path: &mut Vec<Part<'a>>,
        before: &'a RawDocument,
        after: &'a RawDocument,
    ) -> Result<(), CommandFailure> {
        let old: BTreeMap<_, _> = fields(before).collect();
        let mut gone = old.clone();
        for (name, value) in fields(after) {
            gone.remove(name);
            path.push(Part::Field(name));
            self.of_values(path, old.get(name).copied(), value)?;
            path.pop();
        }
        for (name, _) in fields(before).filter(|(name, _)| gone.contains_key(name)) {
            path.push(Part::Field(name));
            let text = self.text(path);
            self.removed.push(text);
            path.pop();
        }
        Ok(())
    }

    fn of_arrays<'a>(
        &mut self,
        path: &mut Vec<Part<'a>>,
        before: &'a RawArray,
        after: &'a RawArray,
    ) -> Result<(), CommandFailure> {
        let mut old = values(before);
        let mut length: usize = 0;
        for (index, value) in values(after).enumerate() {
            path.push(Part::Index(index));
            self.of_values(path, old.next(), value)?;
            path.pop();
            length += 1;
        }
        if old.next().is_some() {
            let size = crate::store::pipeline::count(length);
            let text = self.text(path);
            self.truncated.push(document! { "field": text, "newSize": size });
        }
        Ok(())
    }

    fn of_values<'a>(
        &mut self,
        path: &mut Vec<Part<'a>>,
        before: Option<RawBsonRef<'a>>,
        after: RawBsonRef<'a>,
    ) -> Result<(), CommandFailure> {
        self.work.step(weight(after));
        self.work.check()?;
        match (before, after) {
            (Some(before), after) if before == after => Ok(()),
            (Some(RawBsonRef::Document(before)), RawBsonRef::Document(after)) => self.of_documents(path, before, after),
            (Some(RawBsonRef::Array(before)), RawBsonRef::Array(after)) => self.of_arrays(path, before, after),
            (_, after) => {
                let text = self.text(path);
                // The name of a field has no NUL.
                if let Ok(text) = CString::try_from(text) {
                    self.updated.append(&text, after);
                }
                Ok(())
            }
        }
    }

    /// The path as a text, and its parts if that could be read in two ways.
    fn text(&mut self, path: &[Part<'_>]) -> String {
        let mut text = String::new();
        let mut parts = RawArrayBuf::new();
        let mut is_ambiguous = false;
        for (index, part) in path.iter().enumerate() {
            if index > 0 {
                text.push('.');
            }
            match part {
                Part::Field(name) => {
                    text.push_str(name);
                    parts.push(*name);
                    is_ambiguous |= name.contains('.') || name.bytes().all(|digit| digit.is_ascii_digit());
                }
                Part::Index(index) => {
                    text.push_str(&index.to_string());
                    parts.push(crate::store::pipeline::count(*index));
                }
            }
        }
        if is_ambiguous && let Ok(name) = CString::try_from(text.as_str()) {
            self.disambiguated.append(&name, parts);
        }
        text
    }
}
