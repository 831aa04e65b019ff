//! A connection string, as it is and behind what a fuzzer cannot guess.

use cmap_core::options::ClientOptions;

/// Reads each of the strings, and prints all that it says.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for start in ["", "mongodb://", "mongodb://host/?"] {
        read(&format!("{start}{text}"));
    }
}

fn read(text: &str) {
    match ClientOptions::parse(text) {
        Ok((options, warnings)) => {
            assert_eq!(options.hosts.is_empty(), options.srv.host.is_some(), "either hosts, or one to look up");
            let _ = format!("{options:?} {warnings:?} {:?} {:?}", options.check(), options.advice());
            options.set_by_user().for_each(|set| drop(format!("{set:?}")));
            warnings.iter().for_each(|warning| drop(warning.to_string()));
        }
        Err(error) => drop(format!("{error} {error:?}")),
    }
}
