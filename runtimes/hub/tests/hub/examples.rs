//! The configurations of `examples`, as an operator checks them.

use std::fs;
use std::path::Path;
use std::process::Command;

use cmap_hub::users::{self, NewUser};
use cmap_test_server::certificates::{Authority, LOCAL_HOSTS, Validity};

/// Whether `--check` is content with the example, with the files next to it that it names; and what it says.
fn check(name: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let config = folder.path().join(name);
    fs::copy(example, &config).unwrap();
    let authority = Authority::new("hub").unwrap();
    let certificate = authority.server(&LOCAL_HOSTS, Validity::Now).unwrap().pem();
    let uri = "mongodb://hub:secret@db1.example,db2.example/?replicaSet=rs0&maxPoolSize=20";
    for (file, text) in [
        ("uri", uri),
        ("reports.password", "secret"),
        ("hub.pem", &certificate),
        ("listener.pem", &certificate),
        ("clients-ca.pem", &authority.pem()),
        ("db1.token", "0123456789abcdef0123456789abcdef"),
    ] {
        fs::write(folder.path().join(file), text).unwrap();
    }
    let user = NewUser { name: "app".into(), password: "secret".into(), upstream: None };
    users::add(&folder.path().join("users.toml"), &user).unwrap();
    let checked =
        Command::new(env!("CARGO_BIN_EXE_cmap-hub")).arg("--config").arg(config).arg("--check").output().unwrap();
    (checked.status.success(), String::from_utf8(checked.stderr).unwrap())
}

#[test]
fn every_example_passes_its_check() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let (is_good, said) = check(name.to_str().unwrap());
        assert!(is_good, "{name:?}: {said}");
    }
}
