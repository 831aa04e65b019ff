//! Warnings about options that the user set and that have no effect here.

use cmap_core::options::{ClientOptions, Warning};

use super::builder::Monitored;

const WAITS: &str = "this client goes on looking for a server for serverSelectionTimeoutMS";
const NO_RETRY: &str = "a pool repeats no command; repeat it yourself if the error says that it is_retryable";
const OWNER: &str = "the owner of this pool watches the server";

/// A warning for each option that the user set, and that changes nothing.
pub(crate) fn without_effect(options: &ClientOptions, monitored: Monitored) -> Vec<Warning> {
    let is_owned = monitored == Monitored::ByOwner;
    [
        ("retryReads", is_owned && options.retry_reads == Some(true), NO_RETRY),
        ("retryWrites", is_owned && options.retry_writes == Some(true), NO_RETRY),
        ("maxAdaptiveRetries", is_owned && options.max_adaptive_retries.is_some_and(|retries| retries > 0), NO_RETRY),
        ("enableOverloadRetargeting", is_owned && options.enable_overload_retargeting == Some(true), NO_RETRY),
        ("serverSelectionTryOnce", options.server_selection_try_once == Some(true), WAITS),
        ("localThresholdMS", is_owned && options.local_threshold.is_some(), OWNER),
        ("replicaSet", is_owned && options.replica_set.is_some(), OWNER),
        ("serverSelectionTimeoutMS", is_owned && options.server_selection_timeout.is_some(), OWNER),
        ("heartbeatFrequencyMS", is_owned && options.heartbeat_frequency.is_some(), OWNER),
        ("serverMonitoringMode", is_owned && options.server_monitoring_mode.is_some(), OWNER),
    ]
    .into_iter()
    .filter(|(_, is_set, _)| *is_set)
    .map(|(option, _, reason)| Warning::NoEffect { option, reason })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(query: &str, monitored: Monitored) -> Vec<&'static str> {
        let (options, warnings) = ClientOptions::parse(&format!("mongodb://h/?{query}")).unwrap();
        assert_eq!(warnings, [], "{query}");
        let without_effect = without_effect(&options, monitored);
        let mut names = Vec::new();
        for warning in &without_effect {
            if let Warning::NoEffect { option, .. } = warning {
                names.push(*option);
            }
        }
        names
    }

    #[test]
    fn an_option_that_changes_nothing_is_warned_of_by_name() {
        for (query, expected) in [
            ("serverSelectionTryOnce=true&w=majority", &["serverSelectionTryOnce"][..]),
            ("retryWrites=true&retryReads=true&maxAdaptiveRetries=3", &[]),
            ("localThresholdMS=20&enableOverloadRetargeting=true", &[]),
            ("readPreference=secondary&readPreferenceTags=dc:a&maxStalenessSeconds=90", &[]),
            ("w=5&journal=true&readConcernLevel=majority&replicaSet=rs&heartbeatFrequencyMS=500", &[]),
        ] {
            assert_eq!(named(query, Monitored::ByClient), expected, "{query}");
        }
        assert_eq!(named("heartbeatFrequencyMS=500", Monitored::ByOwner), ["heartbeatFrequencyMS"]);
        assert_eq!(named("retryWrites=false&retryReads=true", Monitored::ByOwner), ["retryReads"]);
    }

    #[test]
    fn a_warning_says_what_to_do() {
        let (options, _) = ClientOptions::parse("mongodb://h/?retryWrites=true").unwrap();
        let warnings = without_effect(&options, Monitored::ByOwner);

        let expected = "option retryWrites has no effect: a pool repeats no command; repeat it yourself if the error says that \
                        it is_retryable";
        assert_eq!(warnings.iter().map(Warning::to_string).collect::<Vec<_>>(), [expected]);
    }
}
