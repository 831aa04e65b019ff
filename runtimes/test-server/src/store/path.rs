//! Dotted paths into documents, through arrays.
//!
//! `a.b` leads from a document to its field `a` and from there to `b`. At an array, the path goes on in every document
//! of the array and, if its next part is a number, also in that element. Only one path in many has such numbers;
//! because each doubles the ways, a path may have only a few.

use std::ops::ControlFlow;

use bson::{RawBsonRef, RawDocument};

use super::failure::{CommandFailure, code};
use super::work::Work;

/// The most parts of a path: no document is nested deeper.
const MAX_PARTS: usize = 200;
/// The most parts that may be numbers.
const MAX_NUMBERS: usize = 8;

/// The way to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path(Vec<String>);

/// The value at the end of one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// The value, if there is one.
    pub(super) value: Option<RawBsonRef<'a>>,
    /// Whether it is an element of the array at the end of the way, and the array itself is found, too.
    pub(super) is_element: bool,
}

impl Path {
    /// Reads a path.
    pub(super) fn parse(text: &str) -> Result<Self, CommandFailure> {
        let parts: Vec<_> = text.split('.').take(MAX_PARTS + 1).map(ToString::to_string).collect();
        if parts.len() > MAX_PARTS {
            return Err(CommandFailure::new(code::OVERFLOW, format!("a field path has at most {MAX_PARTS} parts")));
        }
        if parts.iter().filter(|part| position(part).is_some()).count() > MAX_NUMBERS {
            let message = format!("a field path has at most {MAX_NUMBERS} numbers on this test server");
            return Err(CommandFailure::new(code::OVERFLOW, message));
        }
        Ok(Self(parts))
    }

    /// Leads on to a field or an element.
    pub(super) fn push(&mut self, part: String) {
        self.0.push(part);
    }

    /// Its parts, at least one.
    pub(super) fn parts(&self) -> &[String] {
        &self.0
    }

    /// Whether it is this one field of the document itself.
    pub(super) fn is(&self, name: &str) -> bool {
        matches!(&self.0[..], [only] if only == name)
    }

    /// Calls `visit` with each value found, until it breaks off or there was too much work.
    pub(super) fn visit<'a>(
        &self,
        document: &'a RawDocument,
        work: &Work,
        visit: &mut impl FnMut(Found<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        visit_document(document, &self.0, work, visit)
    }

    /// The value at the end of a way that leads through documents only.
    pub(super) fn get<'a>(&self, document: &'a RawDocument, work: &Work) -> Option<RawBsonRef<'a>> {
        let (last, parents) = self.0.split_last()?;
        let mut document = document;
        for part in parents {
            document = work.get(document, part)?.as_document()?;
        }
        work.get(document, last)
    }
}

/// The array index that a part of a path stands for.
pub(super) fn position(part: &str) -> Option<usize> {
    let is_number = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    if is_number { part.parse().ok() } else { None }
}

fn visit_document<'a>(
    document: &'a RawDocument,
    parts: &[String],
    work: &Work,
    visit: &mut impl FnMut(Found<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if work.is_over() {
        return ControlFlow::Break(());
    }
    match parts.split_first() {
        None => visit(Found { value: Some(RawBsonRef::Document(document)), is_element: false }),
        Some((first, rest)) => visit_value(work.get(document, first), rest, work, visit),
    }
}

fn visit_value<'a>(
    value: Option<RawBsonRef<'a>>,
    rest: &[String],
    work: &Work,
    visit: &mut impl FnMut(Found<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let array = value.and_then(RawBsonRef::as_array);
    let Some(next) = rest.first() else {
        for element in array.into_iter().flat_map(|array| work.values(array)) {
            visit(Found { value: Some(element), is_element: true })?;
        }
        return visit(Found { value, is_element: false });
    };
    if let Some(document) = value.and_then(RawBsonRef::as_document) {
        return visit_document(document, rest, work, visit);
    }
    let Some(array) = array else { return visit(Found { value: None, is_element: false }) };
    if let Some(position) = position(next)
        && let Some(element) = work.values(array).nth(position)
    {
        match &rest[1..] {
            // The path ends at this element, and does not go on into it if it is an array.
            [] => visit(Found { value: Some(element), is_element: false })?,
            rest => visit_value(Some(element), rest, work, visit)?,
        }
    }
    for element in work.values(array) {
        if let Some(document) = element.as_document() {
            visit_document(document, rest, work, visit)?;
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {

    use bson::{RawDocumentBuf, rawdoc};

    use super::super::limits::StoreLimits;
    use super::*;

    /// The integers that are found, in order; -1 for what is missing, -2 for anything else.
    fn found(document: &RawDocumentBuf, path: &str) -> Vec<i32> {
        let mut all = Vec::new();
        let _ = Path::parse(path).unwrap().visit(document, &Work::new(&StoreLimits::default()), &mut |found| {
            all.push(found.value.map_or(-1, |value| value.as_i32().unwrap_or(-2)));
            ControlFlow::Continue(())
        });
        all
    }

    #[test]
    fn paths_lead_through_documents_and_arrays() {
        let document = rawdoc! { "a": { "b": 1 }, "c": [{ "b": 2 }, { "x": 0 }, 7, { "b": [3, 4] }], "e": [] };

        assert_eq!(found(&document, "a.b"), [1]);
        assert_eq!(found(&document, "a.b.c"), [-1]);
        assert_eq!(found(&document, "a.x"), [-1]);
        assert_eq!(found(&document, "c.b"), [2, -1, 3, 4, -2]);
        assert_eq!(found(&document, "c.2"), [7, -1, -1, -1]);
        assert_eq!(found(&document, "c.0.b"), [2, -1, -1, -1]);
        assert!(found(&document, "e.b").is_empty());
        assert_eq!(found(&document, "e"), [-2]);
    }

    #[test]
    fn a_path_has_an_end() {
        assert!(Path::parse(&vec!["a"; 200].join(".")).is_ok());
        assert_eq!(Path::parse(&vec!["a"; 201].join(".")).unwrap_err().code, code::OVERFLOW);
        assert_eq!(Path::parse(&["0"; 9].join(".")).unwrap_err().code, code::OVERFLOW);
    }
}
