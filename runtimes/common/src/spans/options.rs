//! Whether a client has spans, and what they show (OTEL-1).

use cmap_core::log::MaxDocumentLength;

/// Turns spans on.
const ENABLED: &str = "OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED";

/// How much of a command they show.
const QUERY_TEXT_MAX_LENGTH: &str = "OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH";

/// Whether a client has spans by OpenTelemetry's names, and what they show. What is `None` is the environment's to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanOptions {
    /// Whether there are spans. `None`: if the variable `OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED` is `1`, `true` or `yes`.
    pub enabled: Option<bool>,
    /// How many bytes of a command its span shows as `db.query.text`; 0 is none. Values in it may be personal data. `None`: as the
    /// variable `OTEL_RUST_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH` says, and 0 without it.
    pub query_text_max_length: Option<usize>,
}

/// The spans of a client that has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// How much of a command they show. `None`: nothing.
    pub(super) query_text: Option<MaxDocumentLength>,
}

impl SpanOptions {
    /// Spans, with what the environment says about the rest.
    pub fn on() -> Self {
        Self { enabled: Some(true), ..Self::default() }
    }

    /// The spans of a client with these options, where `variable` reads the environment.
    pub(crate) fn spans(self, variable: impl Fn(&str) -> Option<String>) -> Option<Spans> {
        let is_on = |text: String| ["1", "true", "yes"].iter().any(|on| text.trim().eq_ignore_ascii_case(on));
        if !self.enabled.unwrap_or_else(|| variable(ENABLED).is_some_and(is_on)) {
            return None;
        }
        // What is no length counts as unset.
        let length = || variable(QUERY_TEXT_MAX_LENGTH)?.trim().parse().ok();
        let length = self.query_text_max_length.or_else(length).unwrap_or_default();
        Some(Spans { query_text: (length > 0).then_some(MaxDocumentLength(length)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'e>(enabled: &'e str, length: &'e str) -> impl Fn(&str) -> Option<String> + use<'e> {
        move |name| match name {
            ENABLED => Some(enabled.to_owned()),
            QUERY_TEXT_MAX_LENGTH => Some(length.to_owned()),
            _ => None,
        }
    }

    #[test]
    fn there_are_no_spans_unless_something_asks_for_them_otel_1() {
        assert_eq!(SpanOptions::default().spans(|_| None), None);
        for text in ["0", "false", "no", "", "on"] {
            assert_eq!(SpanOptions::default().spans(environment(text, "7")), None, "{text}");
        }
        for text in ["1", "true", "yes", "YES"] {
            assert!(SpanOptions::default().spans(environment(text, "7")).is_some(), "{text}");
        }
    }

    #[test]
    fn what_code_says_counts_for_more_than_the_environment_otel_1() {
        let off = SpanOptions { enabled: Some(false), ..SpanOptions::default() };
        assert_eq!(off.spans(environment("1", "7")), None);
        let shown = |length| SpanOptions { query_text_max_length: length, ..SpanOptions::on() };
        let of = |options: SpanOptions| options.spans(environment("0", "7")).unwrap().query_text;

        assert_eq!(of(shown(None)), Some(MaxDocumentLength(7)));
        assert_eq!(of(shown(Some(0))), None);
        assert_eq!(of(shown(Some(9))), Some(MaxDocumentLength(9)));
        assert_eq!(SpanOptions::on().spans(environment("1", "much")).unwrap().query_text, None);
    }
}
