//! The messages that each side of an authentication receives.

/// Runs one input.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    cmap_test_server::fuzz::auth::run(data);
}
