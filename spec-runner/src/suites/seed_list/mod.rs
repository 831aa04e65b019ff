//! The official tests of seed lists in DNS: the hosts and the options that a `mongodb+srv` connection string leads to.
//!
//! The files count on records that MongoDB keeps in the public DNS. Nothing is looked up here: `dns` has the same records. What
//! a file says of the deployment behind the hosts (`hosts`, `numHosts`, `ping`) is read, and not compared: there is none.

mod dns;
mod format;

use alloc::collections::BTreeSet;

use cmap_core::options::{ClientOptions, OptionValue, Secret};
use cmap_core::random::Random;
use cmap_core::topology::seed_list::SeedList;
use serde_json::Value;

pub use self::format::SeedListFile;
use self::format::{Expected, ExpectedOptions, ParsedOptions, Seeds};
use super::outcome::Outcome;

/// The seed of the choice among too many hosts.
const SEED: u64 = 0;

/// Runs a file.
pub fn run(file: &SeedListFile) -> Outcome {
    Outcome::of(match (resolve(&file.uri), &file.expected) {
        (Err(_), Expected::Error) => Vec::new(),
        (Err(error), Expected::Options(_)) => vec![format!("expected options, got the error: {error}")],
        (Ok(_), Expected::Error) => vec!["expected an error, got options".into()],
        (Ok(actual), Expected::Options(expected)) => {
            let mut differences = Vec::new();
            compare_seeds(&expected.seeds, &actual, &mut differences);
            compare_options(&expected.options, &actual, &mut differences);
            compare_parsed(&expected.parsed_options, &actual, &mut differences);
            differences
        }
    })
}

/// The options that `uri` leads to.
fn resolve(uri: &str) -> Result<ClientOptions, String> {
    let (options, _) = ClientOptions::parse(uri).map_err(|error| error.to_string())?;
    let Some(seed_list) = SeedList::of(&options) else { return Err("it has hosts already".into()) };
    let request = seed_list.request();
    let (srv, txt) = (dns::srv(&request.srv_name), dns::txt(&request.txt_name));
    let resolved = seed_list.resolve(options, Ok(srv), Ok(txt), &mut Random::new(SEED));
    resolved.map(|resolved| resolved.options).map_err(|error| error.to_string())
}

fn compare_seeds(expected: &Seeds, options: &ClientOptions, differences: &mut Vec<String>) {
    let actual: BTreeSet<String> = options.hosts.iter().map(ToString::to_string).collect();
    if let Some(seeds) = &expected.seeds
        && *seeds != actual
    {
        differences.push(format!("seeds: expected {seeds:?}, got {actual:?}"));
    }
    if let Some(count) = expected.num_seeds
        && count != options.hosts.len()
    {
        differences.push(format!("numSeeds: expected {count}, got {}", options.hosts.len()));
    }
}

fn compare_options(expected: &ExpectedOptions, options: &ClientOptions, differences: &mut Vec<String>) {
    let set = |name: &str| {
        let (_, value) = options.set_by_user().find(|(own, _)| *own == name)?;
        Some(match value {
            OptionValue::Boolean(value) => value.into(),
            OptionValue::Integer(value) => value.into(),
            OptionValue::Text(value) => value.into(),
            OptionValue::Secret(_) | OptionValue::List(_) | OptionValue::Properties(_) | OptionValue::TagSets(_) => {
                Value::Null
            }
        })
    };
    for (name, expected) in expected.named() {
        let actual = if name == "ssl" { Some(options.tls.is_enabled().into()) } else { set(name) };
        if expected.is_some() && expected != actual {
            let word = |value: Option<Value>| value.map_or_else(|| "none".into(), |value| value.to_string());
            differences.push(format!("options.{name}: expected {}, got {}", word(expected), word(actual)));
        }
    }
}

fn compare_parsed(expected: &ParsedOptions, options: &ClientOptions, differences: &mut Vec<String>) {
    let credential = options.credential.as_ref();
    let username = credential.and_then(|credential| credential.username.clone());
    let password = credential.and_then(|credential| credential.password.as_ref()).map(Secret::expose);
    if expected.user.is_some() && expected.user != username {
        differences.push(format!("parsed_options.user: expected {:?}, got {username:?}", expected.user));
    }
    // Never shown, as everywhere.
    if expected.password.is_some() && expected.password.as_deref() != password {
        differences.push("parsed_options.password: differs from the expected one".into());
    }
    if expected.database().is_some() && expected.database() != options.database.as_deref() {
        let (expected, actual) = (expected.database(), &options.database);
        differences.push(format!("parsed_options: expected the database {expected:?}, got {actual:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Outcome, SeedListFile, resolve, run};

    fn play(uri: &str, expected: &Value) -> Outcome {
        let mut file = json!({ "uri": uri });
        file.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        run(&SeedListFile::from_json(file).unwrap())
    }

    #[test]
    fn hosts_and_options_are_compared() {
        let uri = "mongodb+srv://u:p@test5.test.build.10gen.cc/";
        let seeds = json!(["localhost.test.build.10gen.cc:27017"]);
        let options = json!({ "replicaSet": "repl0", "authSource": "thisDB", "ssl": true });
        let parsed = json!({ "user": "u", "password": "p" });

        let expected = json!({ "seeds": seeds, "numSeeds": 1, "options": options, "parsed_options": parsed });
        assert_eq!(play(uri, &expected), Outcome::Passed);

        let wrong = json!({
            "seeds": ["localhost.test.build.10gen.cc:1"], "numSeeds": 2, "options": { "replicaSet": "x", "srvMaxHosts": 1 },
            "parsed_options": { "user": "v", "password": "q", "db": "d" },
        });
        let Outcome::Failed { reasons, .. } = play(uri, &wrong) else { panic!("everything is wrong") };
        assert_eq!(reasons.len(), 7, "{reasons:?}");
        assert_eq!(reasons[3], "options.srvMaxHosts: expected 1, got none");
    }

    #[test]
    fn an_error_is_expected_or_not() {
        let (error, good) = (json!({ "error": true, "seeds": [] }), "mongodb+srv://test1.test.build.10gen.cc/");

        assert_eq!(play("mongodb+srv://test4.test.build.10gen.cc/", &error), Outcome::Passed);
        assert_eq!(play(good, &error), Outcome::of(vec!["expected an error, got options".into()]));
        let no_record = play("mongodb+srv://test4.test.build.10gen.cc/", &json!({ "numSeeds": 1 }));
        assert!(matches!(no_record, Outcome::Failed { .. }));
    }

    #[test]
    fn the_records_lead_to_the_errors_that_the_files_are_about() {
        for (host, expected) in [
            ("test4", "has no SRV records"),
            ("test6", "has 2 TXT records"),
            ("test7", "is not allowed in a TXT record"),
            ("test8", "option 1, authSource, has no ="),
            ("test10", "is not allowed in a TXT record"),
            ("test12", "is not below the domain"),
            ("test13", "is not below the domain"),
            ("test19", "is not below the domain"),
        ] {
            let error = resolve(&format!("mongodb+srv://{host}.test.build.10gen.cc/")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
