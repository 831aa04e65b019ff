//! Nothing that can be printed shows a password, a key or a part of one.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Authentication, Conversation, KeyCache, Lookup, ScramLogin, ServerFault, StoredKeys};
use super::*;
use crate::connection::{EstablishError, Fault, Phase};
use crate::options::{Credential, Mechanism, Secret};

const PASSWORD: &str = "pencil";

/// `PASSWORD` as text, as hexadecimal digits, as a list of numbers, and as MongoDB's digest of it.
const TRACES: [&str; 4] = [PASSWORD, "70656e63696c", "112, 101, 110", "1c33006ec1ffd90f9cadcbcc0e118200"];

fn debug(value: &dyn core::fmt::Debug) -> [String; 2] {
    [alloc::format!("{value:?}"), alloc::format!("{value:#?}")]
}

#[test]
fn no_debug_shows_a_secret() {
    let mut shown: Vec<String> = Vec::new();
    for mechanism in [Mechanism::ScramSha1, Mechanism::ScramSha256, Mechanism::Plain] {
        let credential = Arc::new(Credential::new("user", PASSWORD.into(), "admin").with_mechanism(mechanism));
        shown.extend(debug(&credential));
        let nonce = Nonce::from_random([1; 24]);
        shown.extend(debug(&Authentication::new(credential.clone(), nonce.clone(), MAX_ITERATIONS).unwrap()));
        let conversation = Conversation::new(mechanism, &credential, nonce, MAX_ITERATIONS).unwrap();
        shown.extend(debug(&conversation));
        shown.extend(debug(&conversation.first()));
    }
    for hash in [ScramHash::Sha1, ScramHash::Sha256] {
        let mut client = client(hash, "abc");
        shown.extend(debug(&client));
        let Ok(Step::Derive(request)) = reply(&mut client, "r=abcdef,s=QSXC,i=4096") else { panic!("{client:?}") };
        shown.extend(debug(&request));
        shown.extend(debug(request.id()));
        let mut cache = KeyCache::default();
        let waiter = cache.enter(&request);
        let Lookup::Derive(ticket) = cache.look_up(&waiter) else { panic!("{cache:?}") };
        let keys = request.run();
        shown.extend(debug(&keys));
        cache.finish(ticket, &keys);
        shown.extend(debug(&cache));
        shown.extend(debug(&client.handle_keys(&keys)));
        shown.extend(debug(&client));
        let stored = StoredKeys::new(hash, "user", &PASSWORD.into(), b"salt", 1).unwrap();
        let login = ScramLogin::parse(b"n,,n=user,r=abc").unwrap();
        shown.extend(debug(&stored));
        shown.extend(debug(&login.challenge(&Nonce::from_text("def"), &stored).0));
    }
    shown.extend(debug(&Secret::from(PASSWORD)));

    for text in shown {
        for trace in TRACES {
            assert!(!text.contains(trace), "{text}");
        }
        // A list of bytes would be a secret of some kind; a payload or a key has more than three.
        assert!(!text.contains("[1") && !text.contains(", 2"), "{text}");
    }
}

#[test]
fn no_error_shows_a_password() {
    for password in ["pencil\0", "pencil\u{7}", "pencil\u{627}"] {
        for mechanism in [Mechanism::ScramSha1, Mechanism::ScramSha256, Mechanism::Plain, Mechanism::MongoDbX509] {
            let credential = Credential::new("user", password.into(), "admin").with_mechanism(mechanism);
            if let Err(error) = Conversation::new(mechanism, &credential, Nonce::from_random([1; 24]), MAX_ITERATIONS) {
                let [short, long] = debug(&error);
                for text in [error.to_string(), short, long, AuthError::from(error).to_string()] {
                    for part in [PASSWORD, "\u{7}", "\\u{7}", "\u{627}", "\\0"] {
                        assert!(!text.contains(part), "{text}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_failed_authentication_is_a_failed_establishment() {
    let refused = AuthError::Server(ServerFault::Refused("a\nb".into()));
    let error = EstablishError::from(refused);
    assert_eq!((error.phase, error.fault), (Phase::Authenticate, Fault::Server { code: None }));
    assert_eq!(error.to_string(), "authentication failed: the server refused: \"a\\nb\"");

    let error = EstablishError::from(AuthError::from(ServerFault::TooFewIterations(1)));
    assert_eq!(error.fault, Fault::Other);
    assert!(error.message.contains("1 iterations, fewer than 4096"), "{error}");
}
