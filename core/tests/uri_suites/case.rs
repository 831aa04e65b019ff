//! One official case of a connection string: a string, and what it must parse to. Fit for any runner; knows no files.

use core::net::{Ipv4Addr, Ipv6Addr};

use cmap_core::address::{DEFAULT_PORT, ServerAddress};
use cmap_core::options::{ClientOptions, ConnectionStringError, OptionValue, Secret, Warning};
use serde_json::{Map, Value};

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything that the case expects is so.
    Passed,
    /// The case needs something that does not exist yet.
    Skipped(&'static str),
    /// What is not so, a line for each.
    Failed(Vec<String>),
}

/// Mechanisms that cannot be carried out yet; their rules beyond the common ones are not checked.
const LATER_MECHANISMS: [&str; 3] = ["GSSAPI", "MONGODB-AWS", "MONGODB-OIDC"];

/// Runs `case`. Cases of the suite of `auth` are skipped where they are about a mechanism that comes later.
///
/// A key that is absent or null expects nothing, except `credential`, where null expects none. `options` lists some of
/// the options that must be set, not all.
pub(crate) fn run(case: &Value, auth: bool) -> Outcome {
    let uri = case["uri"].as_str().unwrap_or_default();
    if auth && LATER_MECHANISMS.iter().any(|name| uri.contains(&format!("authMechanism={name}"))) {
        return Outcome::Skipped("the mechanism does not exist yet");
    }
    let problems = match (ClientOptions::parse(uri), case["valid"].as_bool()) {
        (Err(ConnectionStringError::SrvNotSupported), _) => {
            return Outcome::Skipped("SRV connection strings are not supported yet");
        }
        (Err(_), Some(false)) => Vec::new(),
        (Err(error), _) => vec![format!("expected it to be valid, got the error: {error}")],
        (Ok(_), Some(false)) => vec!["expected an error, got none".to_owned()],
        (Ok((options, warnings)), _) => compare(case, &options, &warnings),
    };
    if problems.is_empty() { Outcome::Passed } else { Outcome::Failed(problems) }
}

fn compare(case: &Value, options: &ClientOptions, warnings: &[Warning]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut expect = |what: &str, expected: &Value, actual: Value| {
        if *expected != actual {
            problems.push(format!("{what}: expected {expected}, got {actual}"));
        }
    };
    if case["warning"].is_boolean() {
        expect("warning", &case["warning"], Value::from(!warnings.is_empty()));
    }
    if case["hosts"].is_array() {
        let hosts: Vec<Value> = case["hosts"].as_array().into_iter().flatten().map(with_default_port).collect();
        expect("hosts", &Value::from(hosts), options.hosts.iter().map(host).collect());
    }
    if case["auth"].is_object() {
        let credential = options.credential.as_ref();
        let actual = [
            ("username", text(credential.and_then(|credential| credential.username.as_deref()))),
            ("password", text(credential.and_then(|credential| credential.password.as_ref()).map(Secret::expose))),
            ("db", text(options.database.as_deref())),
        ];
        expect("auth", &case["auth"], object(actual));
    }
    if let Some(expected) = case.get("credential") {
        let actual = options.credential.as_ref().map_or(Value::Null, |credential| {
            let properties = credential.properties.iter().map(|(name, value)| (name, Value::from(value.expose())));
            let properties: Map<String, Value> = properties.map(|(name, value)| (name.to_owned(), value)).collect();
            object([
                ("username", text(credential.username.as_deref())),
                ("password", text(credential.password.as_ref().map(Secret::expose))),
                ("source", text(Some(&credential.source))),
                ("mechanism", text(credential.mechanism.map(|mechanism| mechanism.name()))),
                ("mechanism_properties", if properties.is_empty() { Value::Null } else { Value::Object(properties) }),
            ])
        });
        expect("credential", expected, actual);
    }
    for (name, expected) in case["options"].as_object().into_iter().flatten() {
        let set = options.set_by_user().find(|(own, _)| own.eq_ignore_ascii_case(name));
        expect(name, expected, set.map_or(Value::Null, |(_, value)| json(&value)));
    }
    problems
}

/// The specification writes null for the default port, and for the port of a Unix socket.
fn with_default_port(host: &Value) -> Value {
    let mut host = host.clone();
    if host["port"].is_null() && host["type"] != "unix" {
        host["port"] = DEFAULT_PORT.into();
    }
    host
}

fn host(address: &ServerAddress) -> Value {
    let (kind, host, port) = match address {
        ServerAddress::Unix { path } => ("unix", path, Value::Null),
        ServerAddress::Tcp { host, port } if host.parse::<Ipv4Addr>().is_ok() => ("ipv4", host, (*port).into()),
        ServerAddress::Tcp { host, port } if host.parse::<Ipv6Addr>().is_ok() => ("ip_literal", host, (*port).into()),
        ServerAddress::Tcp { host, port } => ("hostname", host, (*port).into()),
    };
    object([("type", kind.into()), ("host", host.as_str().into()), ("port", port)])
}

fn json(value: &OptionValue) -> Value {
    match value {
        OptionValue::Boolean(value) => (*value).into(),
        OptionValue::Integer(value) => (*value).into(),
        OptionValue::Text(value) => value.as_str().into(),
        OptionValue::Secret(value) => value.expose().into(),
        OptionValue::List(values) => values.iter().map(String::as_str).collect(),
        OptionValue::Properties(properties) => {
            properties.iter().map(|(name, value)| (name.to_owned(), Value::from(value.expose()))).collect()
        }
        OptionValue::TagSets(sets) => {
            let set = |set: &cmap_core::options::TagSet| -> Value {
                set.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
            };
            sets.iter().map(set).collect()
        }
    }
}

fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
