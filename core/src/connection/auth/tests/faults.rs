//! Every way in which a server's message can be wrong, each with its own error; and calls out of turn.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::{AuthError, AuthMisuse, DeriveKey, MAX_MESSAGE, Malformed, Message, Nonce, ScramHash, ServerFault};
use super::*;

const NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";
const SERVER_FIRST: &str = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
const SERVER_FINAL: &str = "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=";

fn asked(step: Step) -> DeriveKey {
    match step {
        Step::Derive(request) => request,
        Step::Send(_) | Step::Done => panic!("{step:?}"),
    }
}

fn proved() -> ScramClient {
    let mut client = client(ScramHash::Sha1, NONCE);
    let step = reply(&mut client, SERVER_FIRST).unwrap();
    derive(&mut client, step);
    client
}

#[test]
fn a_wrong_server_first_is_refused() {
    let malformed = |problem| ServerFault::Malformed { message: Message::ServerFirst, problem };
    let first = |rest: &str| alloc::format!("r={NONCE}x,{rest}").into_bytes();
    let too_many = |asked| ServerFault::TooManyIterations { asked, allowed: MAX_ITERATIONS };
    let cases: Vec<(Vec<u8>, ServerFault)> = alloc::vec![
        (alloc::vec![b'a'; MAX_MESSAGE + 1], malformed(Malformed::TooLong)),
        (b"r=\xff".to_vec(), malformed(Malformed::NotUtf8)),
        (Vec::new(), malformed(Malformed::Attribute('r'))),
        (b"s=QSXC,i=4096".to_vec(), malformed(Malformed::Attribute('r'))),
        (b"r=,s=QSXC,i=4096".to_vec(), malformed(Malformed::Attribute('r'))),
        (first("i=4096,s=QSXC"), malformed(Malformed::Attribute('s'))),
        (first("s=,i=4096"), malformed(Malformed::Attribute('s'))),
        (first("s=QSXC"), malformed(Malformed::Attribute('i'))),
        (first("s=QSXC,i=40\x0096"), malformed(Malformed::Attribute('i'))),
        (first("s=QSXC,i=4096,"), malformed(Malformed::Extension)),
        (first("s=QSXC,i=4096,1=x"), malformed(Malformed::Extension)),
        (b"m=x,r=y,s=QSXC,i=4096".to_vec(), malformed(Malformed::MandatoryExtension)),
        (first("s=QSXC,i=4096,m=x"), malformed(Malformed::MandatoryExtension)),
        ("r=n\u{e4}".to_string().into_bytes(), malformed(Malformed::Nonce)),
        (first("s=QSX,i=4096"), malformed(Malformed::Salt)),
        (first("s=QS!C,i=4096"), malformed(Malformed::Salt)),
        (first("s=QSXC,i=0"), malformed(Malformed::Iterations)),
        (first("s=QSXC,i=+4096"), malformed(Malformed::Iterations)),
        (first("s=QSXC,i=-4096"), malformed(Malformed::Iterations)),
        (alloc::format!("r={NONCE},s=QSXC,i=4096").into_bytes(), ServerFault::Nonce),
        (b"r=fyko+d2lbbFgONRv9qkxdawMx,s=QSXC,i=4096".to_vec(), ServerFault::Nonce),
        (first("s=QSXC,i=4095"), ServerFault::TooFewIterations(4095)),
        (first("s=QSXC,i=500001"), too_many(500_001)),
        (first("s=QSXC,i=4294967296"), too_many(4_294_967_296)),
        (first("s=QSXC,i=18446744073709551616"), too_many(u64::MAX)),
        (b"e=unknown-user".to_vec(), ServerFault::Refused("unknown-user".into())),
    ];
    for (payload, fault) in cases {
        let shown = String::from_utf8_lossy(&payload).into_owned();
        let mut client = client(ScramHash::Sha1, NONCE);
        let error = client.handle_reply(Reply::new(&payload, false)).unwrap_err();
        assert_eq!(error, AuthError::Server(fault), "{shown}");
        // It is over, also for a message that would have been right.
        assert_eq!(reply(&mut client, SERVER_FIRST).unwrap_err(), AuthMisuse::UnexpectedReply.into());
    }
}

#[test]
fn a_client_may_allow_more_iterations() {
    let first = alloc::format!("r={NONCE}x,s=QSXC,i=500001");
    let begin = |max_iterations| {
        let (password, nonce) = (SecretBytes::copy_of(b"pencil"), Nonce::from_text(NONCE));
        reply(&mut ScramClient::with_prepared(ScramHash::Sha1, "user", password, nonce, max_iterations), &first)
    };

    assert!(matches!(begin(500_001), Ok(Step::Derive(request)) if request.id().iterations() == 500_001));
    let error = begin(500_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server asked for 500001 iterations, and 500000 are allowed; if it is to be trusted, raise \
         max_scram_iterations"
    );
}

#[test]
fn a_wrong_server_final_is_refused() {
    let malformed = |problem| ServerFault::Malformed { message: Message::ServerFinal, problem };
    for (payload, fault) in [
        ("", malformed(Malformed::Attribute('v'))),
        ("v=", malformed(Malformed::Attribute('v'))),
        ("x=rmF9pqV8S7suAoZWja4dJRkFsKQ=", malformed(Malformed::Attribute('v'))),
        ("v=rmF9pqV8S7suAoZWja4dJRkFsKQ", malformed(Malformed::Signature)),
        ("v=rmF9pqV8S7suAoZWja4dJRkFsKQ=,x", malformed(Malformed::Extension)),
        ("m=x,v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", malformed(Malformed::MandatoryExtension)),
        ("v=rmF9pqV8S7suAoZWja4dJRkFsKA=", ServerFault::Signature),
        ("v=rmF9", ServerFault::Signature),
        ("e=invalid-proof,x=y", ServerFault::Refused("invalid-proof".into())),
    ] {
        for done in [false, true] {
            let error = proved().handle_reply(Reply::new(payload.as_bytes(), done)).unwrap_err();
            assert_eq!(error, AuthError::Server(fault.clone()), "{payload}");
        }
    }
    let long = [SERVER_FINAL, ",x=", &"y".repeat(MAX_MESSAGE)].concat();
    assert_eq!(reply(&mut proved(), &long).unwrap_err(), malformed(Malformed::TooLong).into());
    let error = proved().handle_reply(Reply::new(b"v=\xff", true)).unwrap_err();
    assert_eq!(error, malformed(Malformed::NotUtf8).into());
}

#[test]
fn the_server_ends_the_conversation_neither_early_nor_late() {
    let mut client = client(ScramHash::Sha1, NONCE);
    let error = client.handle_reply(Reply::new(SERVER_FIRST.as_bytes(), true)).unwrap_err();
    assert_eq!(error, ServerFault::EndedEarly.into());

    // AUTH-15: with skipEmptyExchange, and as servers before it did.
    let mut client = proved();
    assert!(matches!(client.handle_reply(Reply::new(SERVER_FINAL.as_bytes(), true)), Ok(Step::Done)));
    let mut client = proved();
    assert_eq!(sent(reply(&mut client, SERVER_FINAL)).as_bytes(), b"");
    assert!(matches!(client.handle_reply(Reply::new(b"", true)), Ok(Step::Done)));

    let mut client = proved();
    assert_eq!(sent(reply(&mut client, SERVER_FINAL)).as_bytes(), b"");
    assert_eq!(reply(&mut client, "").unwrap_err(), ServerFault::NotEnded.into());
}

#[test]
fn extensions_that_require_nothing_are_ignored() {
    let mut client = client(ScramHash::Sha1, NONCE);
    let step = reply(&mut client, &[SERVER_FIRST, ",x=y,Z=\u{e4}"].concat()).unwrap();
    derive(&mut client, step);

    assert!(reply(&mut proved(), &[SERVER_FINAL, ",x=y"].concat()).is_ok());
}

#[test]
fn a_call_out_of_turn_changes_nothing() {
    let mut stranger = client(ScramHash::Sha1, NONCE);
    let strange = asked(reply(&mut stranger, &SERVER_FIRST.replace("4096", "4097")).unwrap()).run();
    let mut client = client(ScramHash::Sha1, NONCE);

    assert_eq!(client.handle_keys(&strange).unwrap_err(), AuthMisuse::UnexpectedKeys.into());
    let request = asked(reply(&mut client, SERVER_FIRST).unwrap());
    assert_eq!(reply(&mut client, SERVER_FINAL).unwrap_err(), AuthMisuse::UnexpectedReply.into());
    assert_eq!(client.handle_keys(&strange).unwrap_err(), AuthMisuse::UnexpectedKeys.into());
    let keys = request.run();
    sent(client.handle_keys(&keys));
    assert_eq!(client.handle_keys(&keys).unwrap_err(), AuthMisuse::UnexpectedKeys.into());
    assert!(matches!(client.handle_reply(Reply::new(SERVER_FINAL.as_bytes(), true)), Ok(Step::Done)));
}
