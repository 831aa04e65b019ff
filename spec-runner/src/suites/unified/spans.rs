//! The spans of a client as a test sees them: a tree, in the order in which they were opened.

use core::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{Bson, Document};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::format::{ExpectedSpan, ExpectedSpans};
use super::matching::Saved;
use crate::suites::extended_json;

/// The field that has the name of a span (OTEL-10).
const NAME: &str = "otel.name";

/// A document, which its field has as text.
const LSID: &str = "db.mongodb.lsid";

/// Collects the spans that are opened on one thread. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Collector(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    /// The number of a span is its place, and one.
    spans: Vec<Span>,
    /// The numbers of those that are entered.
    entered: Vec<u64>,
}

#[derive(Debug, Default)]
struct Span {
    parent: Option<u64>,
    attributes: Document,
}

impl Collector {
    /// How the spans so far differ from those that are expected of the only client that has some.
    pub fn compare(&self, expected: &ExpectedSpans, saved: Saved<'_>) -> Option<String> {
        let collected = self.read();
        collected.compare(None, &expected.spans, expected.ignore_extra_spans, saved).err()
    }

    fn read(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collected {
    /// Compares the children of `parent` with `expected`, one after the other.
    fn compare(
        &self,
        parent: Option<u64>,
        expected: &[ExpectedSpan],
        may_be_more: bool,
        saved: Saved<'_>,
    ) -> Result<(), String> {
        let mut found = (1_u64..).zip(&self.spans).filter(|(_, span)| span.parent == parent);
        for wanted in expected {
            let mut mismatch = format!("expected the span `{}`, got no more spans", wanted.name);
            loop {
                let Some((number, span)) = found.next() else { return Err(mismatch) };
                match self.compare_one(number, span, wanted, may_be_more, saved) {
                    Ok(()) => break,
                    Err(reason) if may_be_more => mismatch = reason,
                    Err(reason) => return Err(reason),
                }
            }
        }
        match found.next().filter(|_| !may_be_more) {
            None => Ok(()),
            Some((_, span)) => Err(format!("expected no more spans, got `{}`", span.name())),
        }
    }

    fn compare_one(
        &self,
        number: u64,
        span: &Span,
        wanted: &ExpectedSpan,
        may_be_more: bool,
        saved: Saved<'_>,
    ) -> Result<(), String> {
        if span.name() != wanted.name {
            return Err(format!("expected the span `{}`, got `{}`", wanted.name, span.name()));
        }
        let attributes = Bson::from(span.attributes.clone());
        wanted
            .attributes
            .compare(Some(&attributes), saved)
            .map_err(|mismatch| format!("the span `{}`: {mismatch}", wanted.name))?;
        self.compare(Some(number), &wanted.nested, may_be_more, saved)
            .map_err(|reason| format!("within `{}`: {reason}", wanted.name))
    }
}

impl Span {
    fn name(&self) -> &str {
        self.attributes.get_str(NAME).unwrap_or_default()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.fields().field(NAME).is_some()
    }

    fn new_span(&self, opened: &Attributes<'_>) -> Id {
        let mut collected = self.read();
        let mut span = Span { parent: collected.entered.last().copied(), ..Span::default() };
        opened.record(&mut span);
        collected.spans.push(span);
        Id::from_u64(collected.spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let place = usize::try_from(id.into_u64() - 1).unwrap_or(usize::MAX);
        if let Some(span) = self.read().spans.get_mut(place) {
            values.record(span);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.read().entered.push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        let mut collected = self.read();
        if let Some(place) = collected.entered.iter().rposition(|entered| *entered == id.into_u64()) {
            collected.entered.remove(place);
        }
    }
}

impl Visit for Span {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.attributes.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let document = || extended_json::document(serde_json::from_str(value).ok()?).ok();
        let document = if field.name() == LSID { document() } else { None };
        self.attributes.insert(field.name(), document.map_or_else(|| Bson::from(value), Bson::from));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.insert(field.name(), value);
    }
}
