//! Properties of every connection string: no panic, no unbounded work, and no secret in anything that is printed.

use cmap_core::options::{ClientOptions, MAX_LENGTH};
use proptest::prelude::*;

/// Pieces that mean something in a connection string.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "mongodb://", "mongodb+srv://", "user", ":", "@", "host", ",", "/", "?", "&", "=", "%", "%20", "%2F", "[::1]", "[",
    "]", ".sock", "27017", "-1", "0", "true", "x", "é", "\0", "appname=", "tls=", "ssl=", "w=", "wtimeout=",
    "authSource=", "authMechanism=", "PLAIN", "MONGODB-X509", "authMechanismProperties=", "SERVICE_NAME:",
    "maxPoolSize=", "minPoolSize=", "readPreferenceTags=", "compressors=", "zlib", "proxyHost=", "proxyPort=",
    "proxyUsername=", "proxyPassword=", "srvMaxHosts=", "srvServiceName=", "srvAllowedHostsSuffix=", "loadBalanced=",
    "timeoutMS=", "9223372036854775807", "99999999999999999999",
];

/// Everything that can be printed about a connection string.
fn printed(text: &str) -> String {
    match ClientOptions::parse(text) {
        Ok((options, warnings)) => {
            let mut printed = format!("{options:?} {warnings:?} {:?} {:?}", options.check(), options.advice());
            options.set_by_user().for_each(|set| printed.push_str(&format!(" {set:?}")));
            warnings.iter().for_each(|warning| printed.push_str(&warning.to_string()));
            printed
        }
        Err(error) => format!("{error} {error:?}"),
    }
}

/// A secret whose parts are recognised wherever they turn up. Between them stand the characters that users forget to
/// encode; `=` is left out, because `?name=value` in a password cannot be told from options.
fn secret() -> impl Strategy<Value = String> {
    let between =
        prop::sample::select(vec!["", "1", "1/", "/", "?", "/?", "@", "%", ":", ",", "#", "[", "%40", "%2", "\0", " "]);
    prop::collection::vec(between, 1..4).prop_map(|between| {
        let mut secret = "hunter2".to_owned();
        for part in between {
            secret = format!("{secret}{part}hunter2");
        }
        secret
    })
}

/// Such a secret after a text that makes its beginning look like a port.
fn like_a_port() -> impl Strategy<Value = String> {
    let ending = prop::sample::select(vec!["/", "?", "/?", ","]);
    (1..70_000_u32, ending, secret()).prop_map(|(port, ending, secret)| format!("{port}{ending}{secret}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for start in ["", "mongodb://", "mongodb://host/?"] {
            printed(&format!("{start}{}", String::from_utf8_lossy(&bytes)));
        }
    }

    #[test]
    fn any_pieces_are_read_without_a_panic(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        for start in ["", "mongodb://", "mongodb://host/?"] {
            printed(&format!("{start}{}", pieces.concat()));
        }
    }

    #[test]
    fn a_password_is_never_printed(
        password in prop_oneof![secret(), like_a_port()],
        rest in prop::sample::select(vec![
            "", "/", "/db", "/?w=1", "?w=1", "/db?foo=bar&w=-1", ":x", ",,", "/a b", "/?appname=a@b",
        ]),
        scheme in prop::sample::select(vec!["mongodb://", "mongodb+srv://", "mongo://", ""]),
    ) {
        let printed = printed(&format!("{scheme}user:{password}@host{rest}"));
        prop_assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn a_secret_option_is_never_printed(
        secret in secret(),
        option in prop::sample::select(vec![
            "proxyHost=p&proxyUsername=u&proxyPassword=",
            "tlsCertificateKeyFilePassword=",
            "authMechanismProperties=",
            "authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:",
            "authMechanism=GSSAPI&authMechanismProperties=SERVICE_NAME:x,",
        ]),
        rest in prop::sample::select(vec![
            "", "&w=-1", "&foo=bar", "&hunter2", "&hunter2=1&hunter2=2", "&tls=true&tls=false",
        ]),
    ) {
        let printed = printed(&format!("mongodb://user:pw@host/?{option}{secret}{rest}"));
        prop_assert!(!printed.contains("hunter2"), "{printed}");
    }
}

#[test]
fn what_is_printed_is_no_longer_than_some_times_the_string() {
    for piece in PIECES {
        let many = piece.repeat(MAX_LENGTH / piece.len() - 20);
        for text in [format!("mongodb://{many}"), format!("mongodb://h/?{many}"), format!("mongodb://h/?{many}a=b")] {
            assert!(printed(&text).len() < 100 * MAX_LENGTH, "{piece}");
        }
    }
}

/// The most expensive options per byte: names that resemble others, so that each is compared with the whole table.
#[test]
fn the_longest_strings_are_read_in_bounded_time() {
    let begin = "mongodb://h/?";
    for option in [
        "a=&",
        "aaaaaaa=&",
        "maxPollSizf=1&",
        "tlsDisableCertificateRevocationChex=&",
        "readPreferenceTags=a:b&",
        "w=1&",
    ] {
        let text = format!("{begin}{}", option.repeat((MAX_LENGTH - begin.len()) / option.len()));
        assert!(!printed(&text).is_empty());
    }
    assert!(printed(&"a".repeat(MAX_LENGTH + 1)).contains("write at most"));
}
