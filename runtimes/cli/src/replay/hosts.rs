//! A copy of a trace in which hosts and users have other names, for those who must not know them (X-98).
//!
//! Every label of a name gets a name of its own, in the same order, so that what depends on domains or on the order of names
//! stays as it was. The names come from a key that nobody keeps. Wherever a name stands, it is replaced: in addresses,
//! descriptions and DNS records, and in the texts of errors; the replies to heartbeats are left out. Then the calls are made again
//! with the new names, and recorded. A history has no calls, and its texts get the new names. A user is named by the text of a refused
//! login alone, in quotation marks, and is replaced wherever that name stands in such.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::net::IpAddr;

use cmap_core::server::ServerId;
use cmap_core::topology::{Answer, Topology};
use cmap_core::trace::{Divergence, Header, History, Note, Recorded, RecorderOptions, Replay, Step, Trace};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

/// Why there is no copy.
#[derive(Debug, Error)]
pub(super) enum HostsError {
    #[error(transparent)]
    Divergence(Box<Divergence>),
    #[error("call {0} has another answer when hosts have other names; share the trace as it is, or not at all")]
    Answer(u64),
    #[error("a part of the trace has no JSON: {0}; report this as a fault of the program")]
    Json(#[from] serde_json::Error),
}

/// The file of the copy. Its calls are numbered from 1.
pub(super) fn replaced(trace: &Trace) -> Result<Vec<u8>, HostsError> {
    let names = Names::of(trace)?;
    let Some(mut replay) = Replay::new(trace) else { return Ok(Vec::new()) };
    let mut copy = Recorded::from(names.replace::<_, Topology<()>>(replay.machine(), &BTreeMap::new())?);
    let mut options = RecorderOptions::default();
    options.bytes = room(trace);
    copy.start_recording(options);
    let (mut pools, mut digests) = (Vec::new(), BTreeMap::new());
    while let Some(step) = replay.step().map_err(HostsError::Divergence)? {
        repeat(&step, &mut copy, &names, &digests)?;
        let now: Vec<ServerId> = replay.machine().pools().map(|(id, _)| id).collect();
        if now != pools {
            pools = now;
            add_digests(replay.machine(), &copy, &mut digests)?;
        }
    }
    let (header, texts) = names.around(trace);
    Ok(copy.recording().map(|contents| contents.with_texts(texts).encode(&header)).unwrap_or_default())
}

/// The file of the copy of what a sparse recorder wrote.
pub(super) fn replaced_in(trace: &Trace, history: &History) -> Result<Vec<u8>, HostsError> {
    let mut found = Found::default();
    found.collect(&serde_json::to_value(history)?, None);
    let names = Names::new(&found);
    let copy: History = names.replace(history, &BTreeMap::new())?;
    let (header, texts) = names.around(trace);
    Ok(copy.encode(&header, &texts))
}

/// Makes a call with the new names.
fn repeat(
    step: &Step<'_>,
    copy: &mut Recorded<()>,
    names: &Names,
    digests: &BTreeMap<u64, u64>,
) -> Result<(), HostsError> {
    let answer = copy.call(step.at, names.replace(step.input, digests)?, Some(()));
    let expected = names.replaced_value(&step.answer, digests)?;
    if without_digests(serde_json::to_value(&answer)?) != without_digests(expected) {
        return Err(HostsError::Answer(step.number));
    }
    for _ in &step.outputs {
        // It was compared by the answers that follow from it.
        let _ = copy.poll_output();
    }
    for note in &step.notes {
        match names.replace::<Note, Note>(note, digests)? {
            Note::Holder(text) => {
                if let Answer::CheckOut(check_out, _) = &answer {
                    copy.note_holder(*check_out, text);
                }
            }
            Note::Taken(check_out, at) => copy.note_taken(at, check_out),
            // Whatever a later schema adds stays out.
            _ => {}
        }
    }
    Ok(())
}

/// Enough memory for all calls in one segment.
fn room(trace: &Trace) -> usize {
    let items: usize = trace.segments.iter().map(|segment| segment.items.len()).sum();
    (1 << 22) + items * 4096
}

/// The BSON document without fields.
const EMPTY_DOCUMENT: [u8; 5] = [5, 0, 0, 0, 0];

/// The names of hosts, and what stands for each.
struct Names {
    /// The longest first, so that a name within another one is not taken for it.
    of_hosts: Vec<(String, String)>,
    /// In quotation marks.
    of_users: Vec<(String, String)>,
}

impl Names {
    fn of(trace: &Trace) -> Result<Self, HostsError> {
        let mut found = Found::default();
        for segment in &trace.segments {
            found.collect(&serde_json::to_value(&segment.snapshot)?, None);
            for item in &segment.items {
                found.collect(&serde_json::to_value(item)?, None);
            }
        }
        Ok(Self::new(&found))
    }

    fn new(found: &Found) -> Self {
        let all: BTreeSet<&str> = found.hosts.iter().flat_map(|name| labels(name)).collect();
        let key = RandomState::new();
        let named = |(rank, label)| (label, format!("n{rank:03}-{:06x}", key.hash_one(label) & 0xff_ffff));
        let named: BTreeMap<&str, String> = all.into_iter().enumerate().map(named).collect();
        let whole = |name: &String| {
            let others: Vec<&str> = labels(name).filter_map(|label| named.get(label)).map(String::as_str).collect();
            (name.clone(), others.join("."))
        };
        let mut of_hosts: Vec<(String, String)> = found.hosts.iter().map(whole).collect();
        of_hosts.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let of_user = |user: &String| (user.clone(), format!("\"user-{:06x}\"", key.hash_one(user) & 0xff_ffff));
        Self { of_hosts, of_users: found.users.iter().map(of_user).collect() }
    }

    /// The header and the notes of a trace, with the new names.
    fn around(&self, trace: &Trace) -> (Header, Vec<(u32, String)>) {
        let mut header = trace.header.clone();
        header.trigger = self.text(&header.trigger);
        let texts = trace.texts.iter().map(|(number, text)| (*number, self.text(text)));
        (header, texts.collect())
    }

    /// A copy of `value` with the new names, and with the digests of the pools of the copy.
    fn replace<T: Serialize, U: DeserializeOwned>(
        &self,
        value: &T,
        digests: &BTreeMap<u64, u64>,
    ) -> Result<U, HostsError> {
        Ok(serde_json::from_value(self.replaced_value(value, digests)?)?)
    }

    fn replaced_value(&self, value: &impl Serialize, digests: &BTreeMap<u64, u64>) -> Result<Value, HostsError> {
        let mut value = serde_json::to_value(value)?;
        self.walk(&mut value, None, digests);
        Ok(value)
    }

    fn walk(&self, value: &mut Value, key: Option<&str>, digests: &BTreeMap<u64, u64>) {
        match value {
            Value::String(text) if key.is_some_and(is_of_host) => *text = self.text(&folded(text)),
            Value::String(text) => *text = self.text(text),
            // A whole document, on which nothing depends: it names all members.
            Value::Array(bytes) if key == Some("reply") => *bytes = EMPTY_DOCUMENT.map(Value::from).to_vec(),
            Value::Array(values) => values.iter_mut().for_each(|value| self.walk(value, key, digests)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(key, value)| self.walk(value, Some(key), digests));
            }
            Value::Number(number) if key == Some(DIGEST) => {
                if let Some(&digest) = number.as_u64().and_then(|digest| digests.get(&digest)) {
                    *value = digest.into();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text with the new names.
    fn text(&self, text: &str) -> String {
        let text = self.of_users.iter().fold(text.to_owned(), |text, (user, other)| text.replace(user, other));
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(next) = rest.chars().next() {
            let is_beginning = !replaced.ends_with(is_of_name);
            let host = self.of_hosts.iter().find(|(name, _)| is_beginning && stands_first(rest, name));
            if let Some((name, other)) = host {
                replaced.push_str(other);
                rest = rest.get(name.len()..).unwrap_or_default();
            } else {
                replaced.push(next);
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
            }
        }
        replaced
    }
}

/// Whether a text begins with a host's name, in any case. A name without a dot may be a word: then it is one only if a port follows, or
/// if nothing does and the case is the same, since `Mongos` is a type of servers.
fn stands_first(text: &str, name: &str) -> bool {
    let Some((start, rest)) = text.split_at_checked(name.len()) else { return false };
    let is_followed_by_port = rest.strip_prefix("]").unwrap_or(rest).starts_with(':');
    let is_at_end =
        if name.contains(['.', ':']) { !rest.starts_with(is_of_name) } else { rest.is_empty() && start == name };
    (is_at_end || is_followed_by_port) && folded(start) == name
}

/// A name as it is compared: in lower case, unless it is a path or has a zone, of which case is a part.
fn folded(name: &str) -> String {
    if name.ends_with(".sock") || name.contains('%') { name.to_owned() } else { name.to_ascii_lowercase() }
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-'
}

/// The parts of a name that have names of their own: an IP address has one.
fn labels(name: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if name.parse::<IpAddr>().is_ok() { Box::new(std::iter::once(name)) } else { Box::new(name.split('.')) }
}

/// The names that are found in a trace.
#[derive(Default)]
struct Found {
    hosts: BTreeSet<String>,
    /// In quotation marks.
    users: BTreeSet<String>,
}

impl Found {
    /// Collects the names of hosts, which are those in fields that hold hosts, and in texts IP addresses and what stands before a port;
    /// and those of users.
    fn collect(&mut self, value: &Value, key: Option<&str>) {
        match value {
            Value::String(text) if key.is_some_and(is_of_host) => {
                let host = without_port(text).trim_end_matches('.');
                if !host.is_empty() {
                    self.hosts.insert(folded(host));
                }
            }
            Value::String(text) => {
                self.hosts.extend(addresses(text).chain(before_ports(text)).map(folded));
                self.users.extend(user(text));
            }
            Value::Array(values) => values.iter().for_each(|value| self.collect(value, key)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| self.collect(value, Some(key))),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The user in the text of a refused login, in quotation marks.
fn user(text: &str) -> Option<String> {
    let (_, quoted) = text.split_once("refused the login of \"")?;
    let mut is_escaped = false;
    let end = quoted.find(|character| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    })?;
    Some(format!("\"{}\"", quoted.get(..end)?))
}

/// Whether a field names hosts.
fn is_of_host(key: &str) -> bool {
    ["host", "hosts", "passives", "arbiters", "me", "primary", "srv_host", "hostname", "path", "target"].contains(&key)
}

fn without_port(text: &str) -> &str {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) && text.parse::<IpAddr>().is_err() => host.trim_matches(['[', ']']),
        _ => text,
    }
}

/// The IP addresses that a text names.
fn addresses(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !(character.is_ascii_hexdigit() || ".:".contains(character)));
    let hosts = words.map(|word| without_port(word.trim_end_matches(['.', ':'])));
    hosts.filter(|host| host.parse::<IpAddr>().is_ok())
}

/// The names before ports in a text that a dot or a hyphen tells from words. One before a line and a column is a file's.
fn before_ports(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !(is_of_name(character) || "._:".contains(character)));
    words.filter_map(|word| {
        let (host, port) = word.trim_end_matches(['.', ':']).rsplit_once(':')?;
        let is_name = host.contains(['.', '-']) && host.contains(|it: char| it.is_ascii_alphabetic());
        (is_name && !host.contains(':') && port.parse::<u16>().is_ok()).then_some(host)
    })
}

// The digests of pools, which depend on the names of their servers.

/// The field that holds one.
const DIGEST: &str = "digest";

/// Adds what stands for the digest of each pool.
fn add_digests(one: &Topology<()>, copy: &Topology<()>, digests: &mut BTreeMap<u64, u64>) -> Result<(), HostsError> {
    pair(&serde_json::to_value(one)?, &serde_json::to_value(copy)?, None, digests);
    Ok(())
}

fn pair(one: &Value, other: &Value, key: Option<&str>, digests: &mut BTreeMap<u64, u64>) {
    match (one, other) {
        (Value::Array(ones), Value::Array(others)) => {
            ones.iter().zip(others).for_each(|(one, other)| pair(one, other, key, digests));
        }
        (Value::Object(ones), Value::Object(others)) => {
            ones.iter().zip(others.values()).for_each(|((key, one), other)| pair(one, other, Some(key), digests));
        }
        (Value::Number(one), Value::Number(other)) if key == Some(DIGEST) => {
            digests.extend(one.as_u64().zip(other.as_u64()));
        }
        _ => {}
    }
}

fn without_digests(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.remove(DIGEST);
            fields.values_mut().for_each(|field| *field = without_digests(field.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_digests(value.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with the names that stand for the hosts of a client and for those that the text names itself.
    fn told(hosts: &[&str], text: &str) -> String {
        let mut found = Found::default();
        found.collect(&serde_json::json!({ "hosts": hosts, "error": text }), None);
        Names::new(&found).text(text)
    }

    #[test]
    fn a_host_has_another_name_in_whichever_case_it_is_written() {
        let told = told(&["db7.corp.example"], "no answer of DB7.Corp.example:27017, nor of db7.corp.example");

        let (_, name) = told.rsplit_once(' ').unwrap();
        assert_eq!(told, format!("no answer of {name}:27017, nor of {name}"));
        assert!(!name.contains("corp"), "{name}");
    }

    #[test]
    fn a_host_that_only_a_text_names_has_another_name_there() {
        let text =
            "Error connecting to shard1-0.internal:27018 (10.2.3.4:27018); rs0/My-Host:1,a_b.internal:27019: refused";

        let told = told(&["router.example"], text);

        for name in ["shard1", "internal", "10.2.3.4", "My-Host", "a_b"] {
            assert!(!told.contains(name), "{name}: {told}");
        }
        assert!(told.starts_with("Error connecting to n") && told.ends_with(":27019: refused"), "{told}");
    }

    #[test]
    fn words_types_and_places_in_sources_are_no_hosts() {
        for text in ["Mongos", "server_error.rs:12:5", "code:91", "TLS 1.2:3", "at 2026-11-28T09:38:12"] {
            assert_eq!(told(&["mongos", "router.example"], text), text);
        }
    }

    #[test]
    fn the_case_of_a_path_tells_sockets_apart() {
        let mut found = Found::default();
        found.collect(&serde_json::json!({ "path": ["/tmp/a.sock", "/tmp/A.sock"] }), None);
        let names = Names::new(&found);

        assert_ne!(names.text("/tmp/a.sock"), names.text("/tmp/A.sock"));
    }

    #[test]
    fn a_user_has_another_name_wherever_it_is_quoted() {
        let mut found = Found::default();
        let refused =
            r#"the server refused the login of "an\"na": Could not find user "an\"na" for db "admin"; check it"#;
        found.collect(&refused.into(), None);

        let told = Names::new(&found).text(refused);

        assert!(!told.contains("na\""), "{told}");
        assert!(
            told.starts_with("the server refused the login of \"user-") && told.contains("for db \"admin\""),
            "{told}"
        );
        assert_eq!(told.matches("\"user-").count(), 2, "{told}");
    }
}
