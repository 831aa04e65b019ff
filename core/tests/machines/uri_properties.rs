//! Properties of every connection string: no panic, no unbounded work, and no secret in anything that is printed.

use cmap_core::options::MAX_LENGTH;
use cmap_core::options::fuzz::run;
use proptest::prelude::*;

/// Pieces that mean something in a connection string.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "mongodb://", "mongodb+srv://", "user", ":", "@", "host", ",", "/", "?", "&", "=", "%", "%20", "%2F", "[::1]", "[",
    "]", ".sock", "27017", "-1", "0", "true", "x", "é", "\0", "appname=", "tls=", "ssl=", "w=", "wtimeout=",
    "authSource=", "authMechanism=", "PLAIN", "MONGODB-X509", "authMechanismProperties=", "SERVICE_NAME:",
    "maxPoolSize=", "minPoolSize=", "readPreferenceTags=", "compressors=", "zlib", "proxyHost=", "proxyPort=",
    "proxyUsername=", "proxyPassword=", "srvMaxHosts=", "srvServiceName=", "loadBalanced=", "timeoutMS=",
    "9223372036854775807", "99999999999999999999",
];

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
        run(&bytes);
        run(&[b"mongodb://".as_slice(), &bytes].concat());
        run(&[b"mongodb://host/?".as_slice(), &bytes].concat());
    }

    #[test]
    fn any_pieces_are_read_without_a_panic(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        run(pieces.concat().as_bytes());
        run(format!("mongodb://{}", pieces.concat()).as_bytes());
        run(format!("mongodb://host/?{}", pieces.concat()).as_bytes());
    }

    #[test]
    fn a_password_is_never_printed(
        password in prop_oneof![secret(), like_a_port()],
        rest in prop::sample::select(vec![
            "", "/", "/db", "/?w=1", "?w=1", "/db?foo=bar&w=-1", ":x", ",,", "/a b", "/?appname=a@b",
        ]),
        scheme in prop::sample::select(vec!["mongodb://", "mongodb+srv://", "mongo://", ""]),
    ) {
        let printed = run(format!("{scheme}user:{password}@host{rest}").as_bytes());
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
        let printed = run(format!("mongodb://user:pw@host/?{option}{secret}{rest}").as_bytes());
        prop_assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn what_is_printed_is_no_longer_than_some_times_the_string(piece in prop::sample::select(PIECES)) {
        let many = piece.repeat(MAX_LENGTH / piece.len() - 20);
        for text in [format!("mongodb://{many}"), format!("mongodb://h/?{many}"), format!("mongodb://h/?{many}a=b")] {
            prop_assert!(run(text.as_bytes()).len() < 100 * MAX_LENGTH);
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
        assert!(!run(text.as_bytes()).is_empty());
    }
    assert!(run(&[b'a'; MAX_LENGTH + 1]).contains("write at most"));
}
