//! Warnings about a client's options on their way to somebody who can correct them, and the options that have no effect here.
//!
//! They go to the log where a reader of `tracing` is installed, and otherwise to standard error: each text once in a process,
//! however many clients are made.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use cmap_core::options::{ClientOptions, Warning};

use super::builder::Monitored;

/// The most texts that are remembered. Later ones are written each time.
const REMEMBERED: usize = 1000;

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

/// Tells `warnings` to the log, or else on standard error unless `quiet`.
pub(crate) fn tell(warnings: &[Warning], quiet: bool) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    #[cfg(feature = "tracing")]
    if tracing::dispatcher::has_been_set() {
        return warnings.iter().for_each(crate::events::logging::warn);
    }
    if !quiet && !warnings.is_empty() {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        write_once(&mut told, warnings, &mut std::io::stderr().lock());
    }
}

/// Writes a line for each warning that was not told before.
fn write_once(told: &mut BTreeSet<String>, warnings: &[Warning], out: &mut impl Write) {
    for warning in warnings {
        let text = warning.to_string();
        if told.contains(&text) {
            continue;
        }
        // There is nobody to tell that nothing can be told.
        let _ = writeln!(out, "cmap: {text}");
        if told.len() < REMEMBERED {
            told.insert(text);
        }
    }
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
    fn a_warning_is_written_once_and_says_what_to_do() {
        let (mut told, mut out) = (BTreeSet::new(), Vec::new());
        let (options, _) = ClientOptions::parse("mongodb://h/?retryWrites=true").unwrap();
        let warnings = without_effect(&options, Monitored::ByOwner);

        write_once(&mut told, &warnings, &mut out);
        write_once(&mut told, &warnings, &mut out);

        let expected = "cmap: option retryWrites has no effect: a pool repeats no command; repeat it yourself if the error \
                        says that it is_retryable\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
