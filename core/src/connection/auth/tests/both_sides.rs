//! Both sides of SCRAM in a conversation with each other.

use alloc::sync::Arc;

use proptest::prelude::*;

use super::super::{
    Authentication, ClientFault, First, KeyCache, Lookup, MIN_ITERATIONS, Opening, ScramLogin, StoredKeys,
};
use super::*;
use crate::options::{Credential, Mechanism, Secret};

/// The results of both sides.
struct Outcome {
    client: Result<Step, AuthError>,
    server: Result<(), ClientFault>,
}

fn mechanism(hash: ScramHash) -> Mechanism {
    match hash {
        ScramHash::Sha1 => Mechanism::ScramSha1,
        ScramHash::Sha256 => Mechanism::ScramSha256,
    }
}

/// A login of `username` by `password` at a server that has `keys` of that user.
fn log_in(
    username: &str,
    password: &str,
    keys: &StoredKeys,
    cache: &mut KeyCache,
    skip_empty_exchange: bool,
) -> Outcome {
    let credential = Credential::new(username, password.into(), "admin").with_mechanism(mechanism(keys.hash()));
    let nonce = Nonce::from_random([1; 24]);
    let authentication = Authentication::new(Arc::new(credential), nonce, MAX_ITERATIONS).unwrap();
    let opening = authentication.handle_hello(None::<[&str; 0]>, None).unwrap();
    let Opening::Start(mut conversation) = opening else { panic!("nothing was answered") };
    let First::SaslStart { payload, .. } = conversation.first() else { panic!("SCRAM starts with saslStart") };
    let login = ScramLogin::parse(payload.as_bytes()).unwrap();
    assert_eq!(login.username(), username);
    let (verifier, server_first) = login.challenge(&Nonce::from_random([2; 24]), keys);
    let step = conversation.handle_reply(Reply::new(server_first.as_bytes(), false));
    let Ok(Step::Derive(request)) = step else { panic!("{step:?}") };
    let waiter = cache.enter(&request);
    let derived = match cache.look_up(&waiter) {
        Lookup::Ready(keys) => keys,
        Lookup::Derive(ticket) => {
            let keys = request.run();
            cache.finish(ticket, &keys);
            keys
        }
        Lookup::Wait => panic!("nobody derives"),
    };
    cache.leave(waiter);
    let client_final = sent(conversation.handle_keys(&derived));
    match verifier.verify(client_final.as_bytes()) {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_right_password_opens_and_a_wrong_one_does_not(
        hash in prop_oneof![Just(ScramHash::Sha1), Just(ScramHash::Sha256)],
        username in "[^\0]{1,20}",
        password in "[ -~\u{2168}\u{aa}]{1,20}",
        more in "[ -~]{1,20}",
        salt in proptest::collection::vec(any::<u8>(), 1..40),
        skip in any::<bool>(),
    ) {
        let keys = StoredKeys::new(hash, &username, &Secret::from(&*password), &salt, MIN_ITERATIONS).unwrap();
        let mut cache = KeyCache::default();
        // The second time the keys come from the cache.
        for _ in 0..2 {
            let outcome = log_in(&username, &password, &keys, &mut cache, skip);
            prop_assert!(matches!(outcome.client, Ok(Step::Done)), "{:?}", outcome.client);
            prop_assert_eq!(outcome.server, Ok(()));
        }
        // Longer, so that it is another one in its normal form, too.
        let wrong = alloc::format!("{password}{more}");
        let outcome = log_in(&username, &wrong, &keys, &mut cache, skip);
        prop_assert!(matches!(outcome.client, Err(AuthError::Server(_))));
        prop_assert_eq!(outcome.server, Err(ClientFault::Proof));
    }
}

#[test]
fn a_user_that_does_not_exist_fails_like_a_wrong_password() {
    for hash in [ScramHash::Sha1, ScramHash::Sha256] {
        let decoy = StoredKeys::decoy(hash, "nobody", b"server's own");

        let outcome = log_in("nobody", "pencil", &decoy, &mut KeyCache::default(), true);

        assert_eq!(outcome.server, Err(ClientFault::Proof), "{hash:?}");
    }
}
