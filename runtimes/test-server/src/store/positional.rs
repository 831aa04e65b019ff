//! Positional operators in the paths of an update: `$[]`, every element of an array, and `$[name]`, those that an array
//! filter matches.
//!
//! Before a modifier is applied, its path is replaced by the paths of the existing elements. The operator `$`, the
//! element that the query matched, is refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bson::raw::CString;
use bson::{Bson, RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{fields, values};
use super::edited::{Edited, STEPS_PER_VALUE};
use super::failure::CommandFailure;
use super::filter::Filter;
use super::path::Path;
use super::work::{Work, weight};

/// The filters of an update, by the names under which its paths use them.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrayFilters(BTreeMap<String, ArrayFilter>);

#[derive(Clone, Debug)]
struct ArrayFilter {
    /// The filter's name for an element.
    name: CString,
    filter: Filter,
}

/// The name in a positional operator; empty in `$[]`.
pub(super) fn name(part: &str) -> Option<&str> {
    part.strip_prefix("$[")?.strip_suffix(']')
}

impl ArrayFilters {
    /// Reads the filters, each of which is about one name.
    pub(super) fn parse(filters: Option<&RawArray>) -> Result<Self, CommandFailure> {
        let mut parsed = Self::default();
        for filter in filters.into_iter().flat_map(values) {
            let Some(document) = filter.as_document() else {
                return Err(CommandFailure::failed_to_parse("an array filter must be an object"));
            };
            let name = only_name(document)?;
            let Entry::Vacant(place) = parsed.0.entry(name.to_string()) else {
                let message = format!("Found multiple array filters with the same top-level field name {name}");
                return Err(CommandFailure::failed_to_parse(message));
            };
            let filter = Filter::parse(document)?;
            let name = CString::try_from(name).map_err(|error| CommandFailure::failed_to_parse(format!("{error}")))?;
            place.insert(ArrayFilter { name, filter });
        }
        Ok(parsed)
    }

    /// Every name in the paths must have its filter, and every filter must be used.
    pub(super) fn check_used<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> Result<(), CommandFailure> {
        let mut unused: Vec<_> = self.0.keys().map(String::as_str).collect();
        for path in paths {
            for name in path.parts().iter().filter_map(|part| name(part)).filter(|name| !name.is_empty()) {
                if !self.0.contains_key(name) {
                    let path = path.parts().join(".");
                    let message = format!("No array filter found for identifier '{name}' in path '{path}'");
                    return Err(CommandFailure::bad_value(message));
                }
                unused.retain(|unused| *unused != name);
            }
        }
        match unused.first() {
            None => Ok(()),
            Some(name) => {
                let message = format!("The array filter for identifier '{name}' was not used in the update");
                Err(CommandFailure::failed_to_parse(message))
            }
        }
    }

    /// The paths in `document` that `path` stands for.
    pub(super) fn expand(&self, document: &mut Edited, path: &Path, work: &Work) -> Result<Vec<Path>, CommandFailure> {
        let mut paths = vec![Path::default()];
        for part in path.parts() {
            let Some(name) = name(part) else {
                paths.iter_mut().for_each(|path| path.push(part.clone()));
                continue;
            };
            let (mut longer, mut bytes) = (Vec::new(), 0);
            for path in paths {
                let dotted = || path.parts().join(".");
                let Some(value) = document.get_mut(&path) else {
                    let message = "must exist in the document in order to apply array updates.";
                    return Err(CommandFailure::bad_value(format!("The path '{}' {message}", dotted())));
                };
                let Some(array) = value.as_array_mut() else {
                    let message = format!("Cannot apply array updates to non-array element {}", dotted());
                    return Err(CommandFailure::bad_value(message));
                };
                for (index, element) in array.iter().enumerate() {
                    work.step(STEPS_PER_VALUE);
                    work.check()?;
                    if self.matches(name, element, work)? {
                        bytes += path.parts().iter().map(|part| size_of::<String>() + part.len()).sum::<usize>();
                        work.check_bytes("the paths of an update", bytes)?;
                        work.step(2 * path.parts().len() as u64);
                        let mut path = path.clone();
                        path.push(index.to_string());
                        longer.push(path);
                    }
                }
            }
            paths = longer;
        }
        Ok(paths)
    }

    /// Whether the filter of that name matches an element; the empty name matches every element.
    fn matches(&self, name: &str, element: &Bson, work: &Work) -> Result<bool, CommandFailure> {
        let Some(ArrayFilter { name, filter }) = self.0.get(name) else { return Ok(true) };
        let element = RawBson::try_from(element.clone());
        let element = element.map_err(|error| CommandFailure::invalid_bson(format!("{error}")))?;
        let mut named = RawDocumentBuf::new();
        named.append(name, element);
        work.step(weight(RawBsonRef::Document(&named)));
        Ok(filter.matches(&named, work))
    }
}

/// The one name with which all paths of a filter begin.
fn only_name(filter: &RawDocument) -> Result<&str, CommandFailure> {
    let mut only = None;
    for (path, _) in fields(filter) {
        let name = path.split('.').next().unwrap_or_default();
        if name.starts_with('$') {
            return Err(CommandFailure::not_supported(&format!("{name} in an array filter")));
        }
        if let Some(other) = only.filter(|other| *other != name) {
            let message = format!(
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found '{other}' and \
                 '{name}'"
            );
            return Err(CommandFailure::failed_to_parse(message));
        }
        only = Some(name);
    }
    only.ok_or_else(|| CommandFailure::failed_to_parse("Cannot use an expression without a top-level field name"))
}
