//! A script of what happens to a client and its servers, under the oracle of `spec-runner simulate`.

/// Runs one input.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    spec_runner::tools::simulate::fuzz::run(data);
}
