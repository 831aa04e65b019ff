//! The official tests of connection strings: the result of parsing a string, or that it is refused.
//!
//! The suites `connection-string`, `uri-options` and `auth` share one format: [`UriFile`] is such a file, [`run`]
//! parses the string of each of its cases and compares the result with the expectations of the case. No pool takes
//! part, so there is no engine and no seed. The string of a case may hold passwords: a failure says that a parsed
//! secret differs, never its value.
//!
//! The suite `read-write-concern` has such files, too, and files of [concerns as documents](ConcernFile); the suite
//! `connection-string` has one of [secrets that nothing may show](DisclosureFile).

mod compare;
mod concern;
mod disclosure;
mod format;

use cmap_core::options::{ClientOptions, ConnectionStringError, Warning};

pub use self::concern::{ConcernCase, ConcernFile, run_concerns};
pub use self::disclosure::{DisclosureCase, DisclosureFile, run_disclosures};
pub use self::format::{Auth, Credential, ExpectedOption, Host, HostType, UriCase, UriFile};
use crate::suites::outcome::Outcome;

/// Mechanisms that cannot be carried out yet; the special rules of their credentials are not checked.
const LATER_MECHANISMS: [&str; 2] = ["GSSAPI", "MONGODB-AWS"];

/// Runs each case of `file`, in its order.
pub fn run(file: &UriFile) -> impl Iterator<Item = (&UriCase, Outcome)> {
    let (about_credentials, about_concerns) = (file.is_about_credentials(), file.is_about_concerns());
    file.tests.iter().map(move |case| (case, run_case(case, about_credentials, about_concerns)))
}

/// Only where credentials are tested does a case need its mechanism; elsewhere it is an option like any other. Where concerns
/// are tested, an invalid value may be ignored with a warning.
fn run_case(case: &UriCase, about_credentials: bool, about_concerns: bool) -> Outcome {
    let names = |mechanism: &&str| case.uri.contains(&format!("authMechanism={mechanism}"));
    if let Some(mechanism) = LATER_MECHANISMS.iter().copied().find(names).filter(|_| about_credentials) {
        return Outcome::Skipped { reason: format!("the mechanism {mechanism} does not exist yet") };
    }
    let reasons = match (parse(&case.uri, about_credentials), case.valid) {
        (Err(_), false) => Vec::new(),
        (Err(error), true) => vec![format!("expected a valid connection string, got the error: {error}")],
        (Ok((_, warnings)), false) if about_concerns && !warnings.is_empty() => Vec::new(),
        (Ok(_), false) => vec!["expected an error, got a valid connection string".into()],
        (Ok((options, warnings)), true) => compare::compare(case, &options, &warnings),
    };
    Outcome::of(reasons)
}

/// Reads a connection string as a client does that has no callback for access tokens. Where credentials are tested, these have to come
/// from somewhere (OIDC-9).
fn parse(uri: &str, about_credentials: bool) -> Result<(ClientOptions, Vec<Warning>), ConnectionStringError> {
    let (options, warnings) = ClientOptions::parse(uri)?;
    if let Some(credential) = options.credential.as_ref().filter(|_| about_credentials) {
        credential.check_token_source(false)?;
    }
    Ok((options, warnings))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Outcome, UriFile, run};

    fn outcomes(cases: Value) -> Vec<Outcome> {
        let file = UriFile::from_json(json!({ "tests": cases })).unwrap();
        run(&file).map(|(_, outcome)| outcome).collect()
    }

    fn case(uri: &str, valid: bool) -> Value {
        json!({ "description": "d", "uri": uri, "valid": valid })
    }

    fn failed(reason: &str) -> Outcome {
        Outcome::of(vec![reason.into()])
    }

    fn skipped(reason: &str) -> Outcome {
        Outcome::Skipped { reason: reason.into() }
    }

    #[test]
    fn a_string_is_valid_or_not_as_expected() {
        let of = |uri, valid| outcomes(json!([case(uri, valid)])).remove(0);
        assert_eq!(of("mongodb://a", true), Outcome::Passed);
        assert_eq!(of("mongo://a", false), Outcome::Passed);
        assert_eq!(of("mongodb://a", false), failed("expected an error, got a valid connection string"));
        let Outcome::Failed { reasons, .. } = of("mongo://a", true) else { panic!("it is no connection string") };
        assert!(reasons[0].starts_with("expected a valid connection string, got the error: "), "{reasons:?}");
    }

    #[test]
    fn an_invalid_concern_may_be_ignored_with_a_warning_x_170() {
        let mut concern = case("mongodb://a/?w=1", true);
        concern["writeConcern"] = json!({ "w": 1 });
        let refused = failed("expected an error, got a valid connection string");

        let invalid = |uri| outcomes(json!([concern, case(uri, false)])).remove(1);
        assert_eq!(invalid("mongodb://a/?w=-2"), Outcome::Passed);
        assert_eq!(invalid("mongodb://a/?w=2"), refused);
        assert_eq!(outcomes(json!([case("mongodb://a/?w=-2", false)])), [refused]);
    }

    #[test]
    fn what_does_not_exist_yet_is_skipped_by_name() {
        let kerberos = "mongodb://u@a/?authMechanism=GSSAPI";
        let mut with_credential = case("mongodb://a", true);
        with_credential["credential"] = Value::Null;
        let expected = [Outcome::Passed, skipped("the mechanism GSSAPI does not exist yet")];
        assert_eq!(outcomes(json!([with_credential, case(kerberos, true)])), expected);
        assert_eq!(outcomes(json!([case(kerberos, true)])), [Outcome::Passed]);
    }
}
