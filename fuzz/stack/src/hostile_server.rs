//! A client in virtual time, and the lies of its server.

/// Runs one input.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    cmap_conformance::hostile::run_script(data);
}
