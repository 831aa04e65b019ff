//! The result of parsing a connection string, next to the expectations of its case.
//!
//! Both sides become JSON values, null for missing ones, and each difference becomes one line that names its place in
//! the case. A value that the library keeps secret is compared like all others, but its line says only that it differs.

use alloc::collections::BTreeSet;
use core::net::{Ipv4Addr, Ipv6Addr};

use cmap_core::address::{DEFAULT_PORT, ServerAddress};
use cmap_core::options::{self, ClientOptions, MechanismProperties, OptionValue, Secret, Warning};
use serde_json::Value;

use super::format::{Auth, Credential, ExpectedOption, Host, HostType, UriCase};
use crate::suites::place::Place;

/// The deviations from the expectations of `case`, a line for each.
pub(super) fn compare(case: &UriCase, options: &ClientOptions, warnings: &[Warning]) -> Vec<String> {
    let mut differences = Differences(Vec::new());
    if let Some(expected) = case.warning {
        differences.warnings(expected, warnings);
    }
    if let Some(expected) = &case.hosts {
        differences.hosts(expected, &options.hosts);
    }
    if let Some(expected) = &case.auth {
        differences.auth(expected, options);
    }
    if let Some(expected) = &case.credential {
        differences.credential(expected.as_ref(), options.credential.as_ref());
    }
    let mut compare = |place: &Place, name: &str, expected: &Option<ExpectedOption>| {
        let set = options.set_by_user().find(|(own, _)| own.eq_ignore_ascii_case(name));
        let expected = expected.as_ref().map_or(&Value::Null, |expected| expected.value());
        differences.option(&place.key(name), expected, set.as_ref().map(|(_, value)| value));
    };
    for (name, expected) in case.options.iter().flatten() {
        compare(&Place::top().key("options"), name, expected);
    }
    if let Some(expected) = &case.read_concern {
        compare(&Place::top().key("readConcern"), "readConcernLevel", &expected.level);
    }
    if let Some(expected) = &case.write_concern {
        let place = Place::top().key("writeConcern");
        compare(&place, "w", &expected.w);
        compare(&place, "wTimeoutMS", &expected.timeout);
        compare(&place, "journal", &expected.journal);
    }
    differences.0
}

/// The lines so far.
struct Differences(Vec<String>);

impl Differences {
    fn warnings(&mut self, expected: bool, actual: &[Warning]) {
        if expected && actual.is_empty() {
            self.0.push("warning: expected one, got none".into());
        } else if !expected {
            self.0.extend(actual.iter().map(|warning| format!("warning: expected none, got: {warning}")));
        }
    }

    fn hosts(&mut self, expected: &[Host], actual: &[ServerAddress]) {
        let expected: Vec<Host> = expected.iter().map(with_default_port).collect();
        let actual: Vec<Host> = actual.iter().map(host).collect();
        if expected != actual {
            let list = |hosts: &[Host]| hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(", ");
            self.0.push(format!("hosts: expected {}, got {}", list(&expected), list(&actual)));
        }
    }

    fn auth(&mut self, expected: &Auth, actual: &ClientOptions) {
        let place = Place::top().key("auth");
        let credential = actual.credential.as_ref();
        let username = credential.and_then(|credential| credential.username.as_ref());
        self.shown(&place.key("username"), &text(expected.username.as_ref()), &text(username));
        let password = credential.and_then(|credential| credential.password.as_ref());
        self.hidden(&place.key("password"), &text(expected.password.as_ref()), &secret(password));
        self.shown(&place.key("db"), &text(expected.db.as_ref()), &text(actual.database.as_ref()));
    }

    fn credential(&mut self, expected: Option<&Credential>, actual: Option<&options::Credential>) {
        let place = Place::top().key("credential");
        let (expected, actual) = match (expected, actual) {
            (None, None) => return,
            (None, Some(_)) => return self.0.push(format!("{place}: expected none, got one")),
            (Some(_), None) => return self.0.push(format!("{place}: expected one, got none")),
            (Some(expected), Some(actual)) => (expected, actual),
        };
        let (username, password) = (text(actual.username.as_ref()), secret(actual.password.as_ref()));
        self.shown(&place.key("username"), &text(expected.username.as_ref()), &username);
        self.hidden(&place.key("password"), &text(expected.password.as_ref()), &password);
        self.shown(&place.key("source"), &text(expected.source.as_ref()), &text(Some(&actual.source)));
        let mechanism = actual.mechanism.map(|mechanism| mechanism.name());
        self.shown(&place.key("mechanism"), &text(expected.mechanism.as_ref()), &text(mechanism));
        let wanted = expected.mechanism_properties.iter().flatten();
        let wanted = texts(wanted.map(|(name, value)| (name.as_str(), value.as_str())));
        self.hidden(&place.key("mechanism_properties"), &wanted, &properties(&actual.properties));
    }

    fn option(&mut self, place: &Place, expected: &Value, actual: Option<&OptionValue>) {
        let shown = match actual {
            None => Value::Null,
            Some(OptionValue::Boolean(actual)) => (*actual).into(),
            Some(OptionValue::Integer(actual)) => (*actual).into(),
            Some(OptionValue::Text(actual)) => text(Some(actual)),
            Some(OptionValue::List(actual)) => actual.iter().map(String::as_str).collect(),
            Some(OptionValue::TagSets(actual)) => {
                let tags = |set: &options::TagSet| texts(set.iter().map(|(name, tag)| (name.as_str(), tag.as_str())));
                actual.iter().map(tags).collect()
            }
            Some(OptionValue::Secret(actual)) => return self.hidden(place, expected, &secret(Some(actual))),
            Some(OptionValue::Properties(actual)) => return self.hidden(place, expected, &properties(actual)),
        };
        self.shown(place, expected, &shown);
    }

    fn shown(&mut self, place: &Place, expected: &Value, actual: &Value) {
        if expected != actual {
            let word = |value: &Value| if value.is_null() { "none".into() } else { value.to_string() };
            self.0.push(format!("{place}: expected {}, got {}", word(expected), word(actual)));
        }
    }

    /// Compares objects by their entries, whose names are no secret.
    fn hidden(&mut self, place: &Place, expected: &Value, actual: &Value) {
        if let (Value::Object(expected), Value::Object(actual)) = (expected, actual) {
            let names: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
            for name in names {
                let of = |entries: &serde_json::Map<String, Value>| entries.get(name).cloned().unwrap_or_default();
                self.hidden(&place.key(name), &of(expected), &of(actual));
            }
        } else if expected != actual {
            self.0.push(match (expected.is_null(), actual.is_null()) {
                (true, _) => format!("{place}: expected none, got one"),
                (false, true) => format!("{place}: expected one, got none"),
                (false, false) => format!("{place}: differs from the expected one"),
            });
        }
    }
}

/// The specification writes null for the default port, and for the port of a Unix socket.
fn with_default_port(host: &Host) -> Host {
    let port = host.port.or((host.host_type != HostType::Unix).then_some(DEFAULT_PORT));
    Host { port, ..host.clone() }
}

fn host(address: &ServerAddress) -> Host {
    let (host_type, host, port) = match address {
        ServerAddress::Unix { path } => (HostType::Unix, path, None),
        ServerAddress::Tcp { host, port } if host.parse::<Ipv4Addr>().is_ok() => (HostType::Ipv4, host, Some(*port)),
        ServerAddress::Tcp { host, port } if host.parse::<Ipv6Addr>().is_ok() => {
            (HostType::IpLiteral, host, Some(*port))
        }
        ServerAddress::Tcp { host, port } => (HostType::Hostname, host, Some(*port)),
    };
    Host { host_type, host: host.clone(), port }
}

fn text(text: Option<impl AsRef<str>>) -> Value {
    text.map_or(Value::Null, |text| text.as_ref().into())
}

fn secret(secret: Option<&Secret>) -> Value {
    text(secret.map(Secret::expose))
}

fn properties(properties: &MechanismProperties) -> Value {
    texts(properties.iter().map(|(name, value)| (name, value.expose())))
}

fn texts<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    entries.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

#[cfg(test)]
mod tests {
    use cmap_core::options::ClientOptions;
    use serde_json::{Value, json};

    use super::super::format::UriFile;
    use super::compare;

    #[track_caller]
    fn check(uri: &str, expected: Value, differences: &[&str]) {
        let mut case = json!({ "description": "d", "uri": uri, "valid": true });
        case.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        let file = UriFile::from_json(json!({ "tests": [case] })).unwrap();
        let (options, warnings) = ClientOptions::parse(uri).unwrap();
        assert_eq!(compare(&file.tests[0], &options, &warnings), differences);
    }

    #[test]
    fn what_is_left_out_is_not_compared() {
        check("mongodb://u:p@a/?w=1&foo=1", json!({}), &[]);
        check("mongodb://u:p@a/?w=1", json!({ "hosts": null, "auth": null, "options": null, "warning": null }), &[]);
    }

    #[test]
    fn hosts_have_the_default_port_where_they_name_none() {
        let hosts = json!([
            { "type": "hostname", "host": "a", "port": null },
            { "type": "ip_literal", "host": "::1", "port": 1 },
            { "type": "unix", "host": "/b.sock", "port": null },
        ]);
        check("mongodb://a,[::1]:1,%2Fb.sock", json!({ "hosts": hosts }), &[]);
        let difference = "hosts: expected hostname \"a\" port 27017, ip_literal \"::1\" port 1, unix \"/b.sock\", \
            got ipv4 \"127.0.0.1\" port 2";
        check("mongodb://127.0.0.1:2", json!({ "hosts": hosts }), &[difference]);
    }

    #[test]
    fn warnings_are_there_or_not() {
        check("mongodb://a", json!({ "warning": true }), &["warning: expected one, got none"]);
        let unknown = "warning: expected none, got: option \"foo\" does not exist and is ignored; remove it";
        check("mongodb://a/?foo=1", json!({ "warning": false }), &[unknown]);
    }

    #[test]
    fn a_parsed_secret_is_never_shown() {
        let uri = "mongodb://u:parsed@a/db";
        let auth = json!({ "auth": { "username": "v", "password": "p", "db": null } });
        let differences = ["auth.username: expected \"v\", got \"u\"", "auth.password: differs from the expected one"];
        check(uri, auth, &[differences[0], differences[1], "auth.db: expected none, got \"db\""]);
        let credential =
            |password: Value| json!({ "credential": { "username": "u", "password": password, "source": "db" } });
        check(uri, credential(json!("parsed")), &[]);
        check(uri, credential(Value::Null), &["credential.password: expected none, got one"]);
        check("mongodb://a", credential(Value::Null), &["credential: expected one, got none"]);
        check(uri, json!({ "credential": null }), &["credential: expected none, got one"]);

        let file = "mongodb://a/?tls=true&tlsCertificateKeyFile=f&tlsCertificateKeyFilePassword=parsed";
        let password = |value: Value| json!({ "options": { "tlsCertificateKeyFilePassword": value } });
        check(file, password(json!("parsed")), &[]);
        check(file, password(json!(5)), &["options.tlsCertificateKeyFilePassword: differs from the expected one"]);

        let aws = "mongodb://u:p@a/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:parsed";
        let expected = json!({ "options": { "authmechanismproperties": { "AWS_SESSION_TOKEN": "t", "X": "x" } } });
        let differences = [
            "options.authmechanismproperties.AWS_SESSION_TOKEN: differs from the expected one",
            "options.authmechanismproperties.X: expected one, got none",
        ];
        check(aws, expected, &differences);
    }

    #[test]
    fn options_are_compared_under_names_in_any_case() {
        let uri =
            "mongodb://a/?w=1&journal=true&compressors=zlib,snappy&readPreference=nearest&readPreferenceTags=x:1,y:2";
        let options = json!({
            "W": 1, "JOURNAL": true, "compressors": ["zlib", "snappy"], "appname": null,
            "readPreferenceTags": [{ "x": "1", "y": "2" }],
        });
        check(uri, json!({ "options": options }), &[]);
        let options = json!({ "w": "1", "journal": null, "compressors": [], "nonsense": 1 });
        let differences = [
            "options.compressors: expected [], got [\"zlib\",\"snappy\"]",
            "options.journal: expected none, got true",
            "options.nonsense: expected 1, got none",
            "options.w: expected \"1\", got 1",
        ];
        check(uri, json!({ "options": options }), &differences);
    }

    #[test]
    fn a_concern_is_compared_with_all_of_its_options() {
        let uri = "mongodb://a/?w=1&readConcernLevel=local";
        check(uri, json!({ "writeConcern": { "w": 1 }, "readConcern": { "level": "local" } }), &[]);
        let differences =
            ["readConcern.readConcernLevel: expected none, got \"local\"", "writeConcern.w: expected none, got 1"];
        check(uri, json!({ "writeConcern": {}, "readConcern": {} }), &differences);
    }
}
