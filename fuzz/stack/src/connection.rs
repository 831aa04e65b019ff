//! A connection is established with the test server and used; the input decides which bytes each side receives.

/// Runs one input.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    cmap_test_server::fuzz::connection::run(data);
}
