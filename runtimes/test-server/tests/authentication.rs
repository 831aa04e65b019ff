//! Both sides against each other, through the whole machine from credential to `Done`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::sync::Arc;

use cmap_core::connection::auth::{
    AuthError, Authentication, Conversation, First, KeyCache, Lookup, MAX_ITERATIONS, Nonce, Opening, Payload, Reply,
    ScramHash, Step,
};
use cmap_core::options::{Credential, Mechanism, Secret};
use cmap_test_server::auth::{ClientFault, ScramLogin, ScramVerifier, StoredCredential};
use proptest::prelude::*;

/// The text in place of the server's nonce.
const NONCE: &str = "AgICAgICAgICAgICAgICAgICAgICAgIC";

/// The results of both sides.
struct Outcome {
    client: Result<Step, AuthError>,
    server: Result<(), ClientFault>,
}

fn hash_of(mechanism: Mechanism) -> ScramHash {
    if mechanism == Mechanism::ScramSha1 { ScramHash::Sha1 } else { ScramHash::Sha256 }
}

fn conversation(mechanism: Mechanism, username: &str, password: &str) -> Conversation {
    let credential = Credential::new(username, password.into(), "admin").with_mechanism(mechanism);
    let authentication =
        Authentication::new(Arc::new(credential), Nonce::from_random([1; 24]), MAX_ITERATIONS).unwrap();
    match authentication.handle_hello(None::<[&str; 0]>, None).unwrap() {
        Opening::Start(conversation) => conversation,
        Opening::Continue(..) => panic!("nothing was answered"),
    }
}

fn converse(
    mut conversation: Conversation,
    stored: &StoredCredential,
    cache: &mut KeyCache,
    skip_empty_exchange: bool,
) -> Outcome {
    let First::SaslStart { payload, .. } = conversation.first() else { panic!("SCRAM starts with saslStart") };
    let login = ScramLogin::parse(payload.as_bytes()).unwrap();
    let (verifier, server_first) = login.challenge(NONCE, stored);
    let step = conversation.handle_reply(Reply::new(server_first.as_bytes(), false));
    let Ok(Step::Derive(request)) = step else { panic!("{step:?}") };
    let waiter = cache.enter(&request);
    let keys = match cache.look_up(&waiter) {
        Lookup::Ready(keys) => keys,
        Lookup::Derive(ticket) => {
            let keys = request.run();
            cache.finish(ticket, &keys);
            keys
        }
        Lookup::Wait => panic!("nobody derives"),
    };
    cache.leave(waiter);
    let client_final = sent(conversation.handle_keys(&keys));
    match ScramVerifier::verify(verifier, client_final.as_bytes()) {
        Ok(server_final) => {
            let mut client = conversation.handle_reply(Reply::new(server_final.as_bytes(), skip_empty_exchange));
            if !skip_empty_exchange {
                assert_eq!(sent(client).as_bytes(), b"");
                client = conversation.handle_reply(Reply::new(b"", true));
            }
            Outcome { client, server: Ok(()) }
        }
        Err(fault) => {
            Outcome { client: conversation.handle_reply(Reply::new(b"e=invalid-proof", true)), server: Err(fault) }
        }
    }
}

fn sent(step: Result<Step, AuthError>) -> Payload {
    match step {
        Ok(Step::Send(payload)) => payload,
        Ok(Step::Derive(_) | Step::Done) | Err(_) => panic!("something is sent: {step:?}"),
    }
}

fn scram() -> impl Strategy<Value = Mechanism> {
    prop_oneof![Just(Mechanism::ScramSha1), Just(Mechanism::ScramSha256)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_right_password_opens_and_a_wrong_one_does_not(
        mechanism in scram(),
        username in "[^\0]{1,20}",
        password in "[ -~\u{2168}\u{aa}]{1,20}",
        wrong in "[ -~]{1,20}",
        salt in proptest::collection::vec(any::<u8>(), 1..40),
        skip in any::<bool>(),
    ) {
        let stored =
            StoredCredential::new(hash_of(mechanism), &username, &Secret::from(&*password), &salt, 4096).unwrap();
        let mut cache = KeyCache::default();
        // The second time the keys come from the cache.
        for _ in 0..2 {
            let outcome = converse(conversation(mechanism, &username, &password), &stored, &mut cache, skip);
            prop_assert!(matches!(outcome.client, Ok(Step::Done)), "{:?}", outcome.client);
            prop_assert_eq!(outcome.server, Ok(()));
        }
        prop_assume!(wrong != password && !password.contains(['\u{2168}', '\u{aa}']));
        let outcome = converse(conversation(mechanism, &username, &wrong), &stored, &mut cache, skip);
        prop_assert!(matches!(outcome.client, Err(AuthError::Server(_))));
        prop_assert_eq!(outcome.server, Err(ClientFault::Proof));
    }
}

#[test]
fn a_user_that_does_not_exist_is_challenged_like_any_other() {
    for mechanism in [Mechanism::ScramSha1, Mechanism::ScramSha256] {
        let decoy = || StoredCredential::decoy(hash_of(mechanism), "nobody", b"server's own", 4096);
        let challenge = || {
            let login = ScramLogin::parse(b"n,,n=nobody,r=abc").unwrap();
            login.challenge("def", &decoy()).1
        };
        assert_eq!(challenge(), challenge());

        let outcome = converse(conversation(mechanism, "nobody", "pencil"), &decoy(), &mut KeyCache::default(), true);
        assert_eq!(outcome.server, Err(ClientFault::Proof));
    }
}
