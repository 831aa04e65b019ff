//! One fuzz target: what holds for every connection string.

use alloc::string::{String, ToString};

use super::ClientOptions;

/// Reads `data` as a connection string, and returns everything that can be printed about it.
///
/// # Panics
///
/// If a property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(data);
    match ClientOptions::parse(&text) {
        Ok((options, warnings)) => {
            assert_eq!(options.hosts.is_empty(), options.srv.host.is_some(), "either hosts, or one to look up");
            let mut printed = alloc::format!("{options:?} {warnings:?} {:?} {:?}", options.check(), options.advice());
            options.set_by_user().for_each(|set| printed.push_str(&alloc::format!(" {set:?}")));
            warnings.iter().for_each(|warning| printed.push_str(&warning.to_string()));
            printed
        }
        Err(error) => alloc::format!("{error} {error:?}"),
    }
}
