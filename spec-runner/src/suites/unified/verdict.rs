//! The checks after a test: the events and the log messages of its clients, and the collections.

use bson::Bson;

use super::client::Engine;
use super::format::{CollectionData, ExpectedEvents, ExpectedLogMessages, ExpectedMessage, Test};
use super::journal::{Message, Noted};
use super::matching::{Saved, text};
use super::operations::Running;

/// The deviations from the test's expectations, one line each.
pub fn judge<E: Engine>(running: &Running<E>, test: &Test) -> Vec<String> {
    let saved = |name: &str| running.entities.value(name);
    let mut reasons = Vec::new();
    for expected in &test.expect_events {
        reasons.extend(match running.entities.client(&expected.client) {
            Ok(caller) => events(expected, &caller.journal.read().events, &saved),
            Err(stop) => Some(stop.to_string()),
        });
    }
    for expected in &test.expect_log_messages {
        reasons.extend(match running.entities.client(&expected.client) {
            Ok(caller) => messages(expected, &caller.journal.read().messages, &running.failures.borrow(), &saved),
            Err(stop) => Some(stop.to_string()),
        });
    }
    for expected in &test.expect_tracing_messages {
        let mismatch = running.spans.compare(expected, &saved);
        reasons.extend(mismatch.map(|mismatch| format!("spans of {}: {mismatch}", expected.client)));
    }
    for expected in &test.outcome {
        reasons.extend(outcome(&running.engine, expected));
    }
    reasons
}

fn events(expected: &ExpectedEvents, noted: &[Noted], saved: Saved<'_>) -> Option<String> {
    let kind = expected.event_type;
    let noted: Vec<&Noted> = noted.iter().filter(|noted| noted.name.kind() == kind).collect();
    let of = |index: usize| format!("{kind:?} event {} of {}", index + 1, expected.client);
    for (index, wanted) in expected.events.iter().enumerate() {
        let Some(found) = noted.get(index) else {
            return Some(format!("{}: expected {:?}, got no more events", of(index), wanted.name));
        };
        if found.name != wanted.name {
            return Some(format!("{}: expected {:?}, got {:?}", of(index), wanted.name, found.name));
        }
        if let Err(mismatch) = wanted.compare(&found.fields, saved) {
            return Some(format!("{}: {:?}: {mismatch}", of(index), wanted.name));
        }
    }
    let extra = noted.get(expected.events.len()).filter(|_| !expected.ignore_extra_events)?;
    Some(format!("{}: expected no more events, got {:?}", of(expected.events.len()), extra.name))
}

fn messages(
    expected: &ExpectedLogMessages,
    noted: &[Message],
    failures: &[String],
    saved: Saved<'_>,
) -> Option<String> {
    let is_ignored = |message: &Message| {
        expected.ignore_messages.iter().any(|ignored| message_mismatch(ignored, message, failures, saved).is_none())
    };
    let noted: Vec<&Message> = noted.iter().filter(|message| !is_ignored(message)).collect();
    let of = |index: usize| format!("log message {} of {}", index + 1, expected.client);
    for (index, wanted) in expected.messages.iter().enumerate() {
        let Some(found) = noted.get(index) else {
            return Some(format!("{}: expected {}, got no more messages", of(index), wanted.data));
        };
        if let Some(mismatch) = message_mismatch(wanted, found, failures, saved) {
            return Some(format!("{}: {mismatch}", of(index)));
        }
    }
    let extra = noted.get(expected.messages.len()).filter(|_| !expected.ignore_extra_messages)?;
    let extra = text(&Bson::from(extra.data.clone()));
    Some(format!("{}: expected no more messages, got {extra}", of(expected.messages.len())))
}

fn message_mismatch(
    expected: &ExpectedMessage,
    found: &Message,
    failures: &[String],
    saved: Saved<'_>,
) -> Option<String> {
    if (expected.level, expected.component.as_str()) != (found.level, found.component) {
        let (level, component) = (expected.level, &expected.component);
        return Some(format!("expected {level:?} {component}, got {:?} {}", found.level, found.component));
    }
    let data = Bson::from(found.data.clone());
    let mismatch = expected.data.compare(Some(&data), saved).err().map(|mismatch| mismatch.to_string());
    mismatch.or_else(|| redaction_mismatch(expected.failure_is_redacted?, found, failures))
}

/// Compares a message's failure with those of the test's operations: one that is not redacted says the same.
fn redaction_mismatch(is_redacted: bool, found: &Message, failures: &[String]) -> Option<String> {
    let failure = found.data.get_str("failure").unwrap_or_default();
    if failures.is_empty() {
        return Some("expected a failure of an operation, got none".into());
    }
    let is_told = failures.iter().any(|own| own.contains(failure) || failure.contains(own.as_str()));
    (is_told == is_redacted).then(|| {
        let expected = if is_redacted { "that keeps back what the server said" } else { "as the operation had it" };
        format!("expected a failure {expected}, got \"{failure}\"")
    })
}

fn outcome<E: Engine>(engine: &E, expected: &CollectionData) -> Option<String> {
    let CollectionData { database_name, collection_name, documents, .. } = expected;
    let place = format!("{database_name}.{collection_name} afterwards");
    match engine.content(database_name, collection_name) {
        Err(failure) => Some(format!("{place}: {failure}")),
        Ok(found) => {
            let list = |documents: Vec<bson::Document>| text(&Bson::from(documents));
            let wanted = list(documents.iter().map(|document| document.0.clone()).collect());
            let found = list(found);
            (wanted != found).then(|| format!("{place}: expected {wanted}, got {found}"))
        }
    }
}
