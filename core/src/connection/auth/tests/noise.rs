//! The client from credential to `Done`, against noise.

use alloc::string::String;
use alloc::sync::Arc;

use proptest::prelude::*;

use super::super::{Authentication, Conversation, Opening};
use super::*;
use crate::options::{Credential, Mechanism};

/// Something like a server-first message to the nonce of [`conversation`], in every part.
const FIRST: &str = "(r=)?(AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB)?[ -~]{0,9}\
    (,s=[A-Za-z0-9+/]{4})?(,i=[0-9]{1,12})?(,[ -~]{0,3})?";

fn conversation(mechanism: Mechanism, username: &str, password: &str) -> Conversation {
    let credential = Credential::new(username, password.into(), "admin").with_mechanism(mechanism);
    let authentication =
        Authentication::new(Arc::new(credential), Nonce::from_random([1; 24]), MAX_ITERATIONS).unwrap();
    match authentication.handle_hello(None::<[&str; 0]>, None).unwrap() {
        Opening::Start(conversation) => conversation,
        Opening::Continue(..) => panic!("nothing was answered"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_server_that_sends_noise_gets_an_error_or_a_bounded_derivation(
        mut first in FIRST,
        noise in proptest::collection::vec(any::<u8>(), 0..20),
        done in any::<bool>(),
    ) {
        let mut conversation = conversation(Mechanism::ScramSha256, "user", "pencil");
        first.push_str(&String::from_utf8_lossy(&noise));
        match conversation.handle_reply(Reply::new(first.as_bytes(), done)) {
            Ok(Step::Derive(request)) => {
                prop_assert!((4096..=500_000).contains(&request.id().iterations()));
                let keys = request.finish(&SecretBytes::zeros(32));
                sent(conversation.handle_keys(&keys));
                prop_assert!(conversation.handle_reply(Reply::new(&noise, done)).is_err());
            }
            Ok(step) => prop_assert!(false, "{step:?}"),
            Err(error) => prop_assert!(matches!(error, AuthError::Server(_)), "{error}"),
        }
    }
}
