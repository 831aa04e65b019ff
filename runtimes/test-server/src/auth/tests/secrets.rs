//! Nothing that can be printed shows a password, a key or a part of one.

use std::fmt::Debug;

use cmap_core::connection::auth::ScramHash;

use crate::auth::{PlainLogin, ScramLogin, StoredCredential};

const PASSWORD: &str = "pencil";

/// `PASSWORD` as text, as hexadecimal digits, as a list of numbers, and as MongoDB's digest of it.
const TRACES: [&str; 4] = [PASSWORD, "70656e63696c", "112, 101, 110", "1c33006ec1ffd90f9cadcbcc0e118200"];

fn debug(value: &dyn Debug) -> [String; 2] {
    [format!("{value:?}"), format!("{value:#?}")]
}

#[test]
fn no_debug_shows_a_secret() {
    let mut shown: Vec<String> = Vec::new();
    for hash in [ScramHash::Sha1, ScramHash::Sha256] {
        let stored = StoredCredential::new(hash, "user", &PASSWORD.into(), b"salt", 1).unwrap();
        shown.extend(debug(&stored));
        let login = ScramLogin::parse(b"n,,n=user,r=abc").unwrap();
        shown.extend(debug(&login.challenge("def", &stored).0));
    }
    shown.extend(debug(&PlainLogin::parse(b"\0user\0pencil").unwrap()));

    for text in shown {
        for trace in TRACES {
            assert!(!text.contains(trace), "{text}");
        }
        // A list of bytes would be a secret of some kind; a key has more than three.
        assert!(!text.contains("[1") && !text.contains(", 2"), "{text}");
    }
}
