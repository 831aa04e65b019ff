//! The reference names what there is: every key of the files, and every metric.

use std::collections::BTreeSet;
use std::fs;

use cmap_hub::{config, users};
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;

use super::house::{Plan, eventually, page};
use super::servers::Servers;

/// The first column of the reference's tables.
fn named() -> Option<BTreeSet<String>> {
    let text = page("reference.md")?;
    let names = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    Some(names.map(str::to_owned).collect())
}

/// The keys that an error says there are in place of an unknown one.
fn expected(error: &str) -> Vec<String> {
    let (_, keys) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
    keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The keys of tables: for each, a file with one that is not there.
fn keys_of(tables: &[(&str, &str)], read: impl Fn(&str) -> String) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (table, text) in tables {
        let names = expected(&read(text));
        keys.extend(names.into_iter().map(|name| if table.is_empty() { name } else { format!("{table}.{name}") }));
    }
    keys
}

/// Whether a key is that of a table, whose own keys are named.
fn is_table(key: &str, keys: &BTreeSet<String>) -> bool {
    keys.iter().any(|other| other.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

#[test]
fn every_key_of_the_configuration_is_there_and_no_other() {
    const LEAST: &str = "[upstream]\nuri = 'mongodb://h/'\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.toml");
    let read = |text: &str| {
        fs::write(&path, text).unwrap();
        config::read(&path).unwrap_err().to_string()
    };
    let reverse = "[upstream.reverse]\naddress = '127.0.0.1:0'\ncertificate = 'c'\n";
    let keys = keys_of(
        &[
            ("", "none = 1"),
            ("upstream", "[upstream]\nnone = 1"),
            ("upstream.identity.NAME", &format!("{LEAST}[upstream.identity.x]\nnone = 1")),
            ("upstream.reverse", &format!("{LEAST}[upstream.reverse]\nnone = 1")),
            ("upstream.reverse.token", &format!("{LEAST}{reverse}[[upstream.reverse.token]]\nnone = 1")),
            ("listen", &format!("{LEAST}[[listen]]\nnone = 1")),
            ("status", &format!("{LEAST}[status]\nnone = 1")),
            ("control", &format!("{LEAST}[control]\nnone = 1")),
            ("log", &format!("{LEAST}[log]\nnone = 1")),
            ("limits", &format!("{LEAST}[limits]\nnone = 1")),
        ],
        read,
    );
    // The one table whose name is anybody's.
    let keys: BTreeSet<_> =
        keys.iter().filter(|key| !is_table(key, &keys) && *key != "upstream.identity").cloned().collect();
    let tables = ["user.", "group.", "cmap_hub_"];
    let Some(named) = named() else { return };
    let named: BTreeSet<_> = named
        .into_iter()
        .filter(|name| name.chars().all(|letter| !letter.is_ascii_uppercase()) || name.contains("NAME."))
        .filter(|name| !tables.iter().any(|table| name.starts_with(table)))
        .collect();

    assert!(keys.len() > 40, "{keys:?}");
    assert_eq!(named.symmetric_difference(&keys).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// The keys of a file, without the names that are anybody's.
fn keys_in(text: &str) -> BTreeSet<String> {
    let (mut keys, mut table) = (BTreeSet::new(), String::new());
    for line in text.lines() {
        if line.starts_with('[') {
            let name = line.trim_matches(['[', ']']);
            table = format!("{}.", name.replace("identity.writer", "identity.NAME"));
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.insert(format!("{table}{key}"));
        }
    }
    keys
}

#[test]
fn every_key_is_in_the_files_by_which_each_is_tried() {
    let mut tried = keys_in(include_str!("../every_key/hub.toml"));
    tried.extend(keys_in(include_str!("../every_key/users.toml")));
    // In place of its file; rules are tables.
    tried.extend(["upstream.uri", "user.allow", "user.deny"].map(str::to_owned));
    let Some(named) = named() else { return };
    let named: BTreeSet<_> = named
        .into_iter()
        .filter(|name| name.chars().all(|letter| !letter.is_ascii_uppercase()) || name.contains("NAME."))
        .filter(|name| !name.starts_with("cmap_hub_"))
        .collect();

    assert_eq!(named.difference(&tried).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn every_key_of_the_users_file_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.toml");
    let read = |text: &str| {
        fs::write(&path, text).unwrap();
        users::read(&path).unwrap_err().to_string()
    };
    let keys = keys_of(&[("user", "[[user]]\nnone = 1"), ("group", "[[group]]\nnone = 1")], read);
    let Some(named) = named() else { return };

    assert!(keys.len() > 15, "{keys:?}");
    assert_eq!(keys.iter().filter(|key| !named.contains(*key)).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_there() {
    let servers = Servers::single().await;
    let rules = "[[user.allow]]\ncommands = ['count']";
    let house = Plan::before(&servers, "").user("anna", rules).status().start().await;
    let anna = house.client_as("anna", "").await;
    anna.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap();
    anna.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap_err();
    let Some(named) = named() else { return };
    let named: BTreeSet<_> = named.into_iter().filter(|name| name.starts_with("cmap_hub_")).collect();
    let mut metrics = BTreeSet::new();

    // What has happened is counted when its client has the reply, or a little later.
    eventually("every metric is there", async || {
        let text = house.get("/metrics").await.1;
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE cmap_hub_")?.split(' ').next());
        metrics = names.map(|name| format!("cmap_hub_{name}")).collect();
        named.is_subset(&metrics)
    })
    .await;

    assert_eq!(named.symmetric_difference(&metrics).collect::<Vec<_>>(), Vec::<&String>::new());
}
