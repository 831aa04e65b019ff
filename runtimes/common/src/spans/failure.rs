//! What a span says about a failure (OTEL-7).

use std::error::Error;

use tracing::Span;

/// Why something failed whose future was dropped.
pub(super) const GIVEN_UP: &str = "its caller gave it up";

/// `span` has failed by `error`, whose type is `of_type`. Errors have no stack: the chain of causes stands in its place.
pub(super) fn record_error(span: &Span, of_type: &str, error: &dyn Error) {
    if span.is_disabled() {
        return;
    }
    let message = error.to_string();
    let (mut chain, mut cause) = (message.clone(), error.source());
    while let Some(error) = cause {
        chain.push_str(&format!("\ncaused by: {error}"));
        cause = error.source();
    }
    record_failed(span, &message);
    span.record("exception.message", &*message);
    span.record("exception.type", of_type);
    span.record("exception.stacktrace", &*chain);
}

/// `span` has failed, for a reason that is no error or must not be shown.
pub(super) fn record_failed(span: &Span, why: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", why);
}
