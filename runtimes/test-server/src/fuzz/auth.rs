//! Both sides of an authentication: a client and a server talk, and the input decides which messages each receives.
//!
//! PBKDF2 is left out: the slow step is replaced by a salted password that both sides know, so an input costs
//! microseconds whatever iteration count it announces.

use std::sync::Arc;

use cmap_core::connection::auth::{
    Authentication, Conversation, First, MAX_ITERATIONS, MIN_ITERATIONS, Nonce, Opening, Reply, ScramHash, ScramLogin,
    ScramVerifier, Step, StoredKeys, fuzz,
};
use cmap_core::options::{Credential, Mechanism};

/// Bytes that are taken from the front.
struct Input<'a>(&'a [u8]);

/// Runs one input.
///
/// # Panics
///
/// If a property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (mechanism, hash) = match input.byte() % 4 {
        0 => (Mechanism::ScramSha1, ScramHash::Sha1),
        1 => (Mechanism::ScramSha256, ScramHash::Sha256),
        _ => return drop(ScramLogin::parse(input.0).map(|login| challenge(login, ScramHash::Sha256))),
    };
    let credential = Arc::new(Credential::new("us=er,", "pencil".into(), "admin").with_mechanism(mechanism));
    let nonce = Nonce::from_random([1; Nonce::RANDOM_BYTES]);
    let Ok(authentication) = Authentication::new(credential, nonce, MAX_ITERATIONS) else { return };
    if let Ok(Opening::Start(conversation)) = authentication.handle_hello(None::<[&str; 0]>, None) {
        converse(conversation, hash, &mut input);
    }
}

fn converse(mut conversation: Conversation, hash: ScramHash, input: &mut Input<'_>) {
    let First::SaslStart { payload, .. } = conversation.first() else { return };
    let first = input.distort(payload.as_bytes());
    let is_first_heard = first == payload.as_bytes();
    let Ok(login) = ScramLogin::parse(&first) else { return };
    let Some((verifier, server_first)) = challenge(login, hash) else { return };
    let heard = input.distort(server_first.as_bytes());
    let Ok(Step::Derive(request)) = conversation.handle_reply(Reply::new(&heard, input.flag())) else { return };
    let iterations = request.id().iterations();
    assert!((MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations), "{iterations} iterations were asked for");

    let proof = conversation.handle_keys(&fuzz::keys(&request, salted(hash)));
    assert!(matches!(proof, Ok(Step::Send(_))), "keys that were asked for are refused");
    let Ok(Step::Send(client_final)) = proof else { return };
    let sent = input.distort(client_final.as_bytes());
    let server_final = match verifier.verify(&sent) {
        Ok(server_final) => {
            // Earlier messages are part of the text that both sign.
            assert!(heard == server_first.as_bytes(), "the server accepted another conversation");
            assert!(sent == client_final.as_bytes(), "the server accepted another proof");
            Some(server_final)
        }
        Err(_) => {
            let is_all_heard = is_first_heard && heard == server_first.as_bytes() && sent == client_final.as_bytes();
            assert!(!is_all_heard, "the server refused the right proof");
            None
        }
    };
    let done = input.flag();
    let last = input.distort(server_final.as_ref().map_or(&b"v="[..], |text| text.as_bytes()));
    if let Ok(step) = conversation.handle_reply(Reply::new(&last, done)) {
        // Extensions after the signature are not signed.
        let signed = server_final.is_some_and(|payload| last.starts_with(payload.as_bytes()));
        assert!(signed, "the client accepted what no server signed");
        assert_eq!(matches!(step, Step::Done), done);
        assert!(conversation.handle_reply(Reply::AUTHENTICATED).is_ok() != done);
    }
}

fn challenge(login: ScramLogin, hash: ScramHash) -> Option<(ScramVerifier, String)> {
    let keys = stored(hash).parse::<StoredKeys>();
    assert!(keys.is_ok(), "the server's record is not read: {keys:?}");
    Some(login.challenge(&Nonce::from_random([2; Nonce::RANDOM_BYTES]), &keys.ok()?))
}

/// The server's record of [`salted`].
fn stored(hash: ScramHash) -> &'static str {
    match hash {
        ScramHash::Sha1 => "SCRAM-SHA-1$4096:c2FsdA==$NJbY7Aqiyb3TtLobBNthOGBuk8E=:kXeTPjyHNLiLMyBjmmCU23TIF/Q=",
        ScramHash::Sha256 => {
            "SCRAM-SHA-256$4096:c2FsdA==$z0iIHx3jgSANcnaHhd2tnisJyHf73fZ+D2J1EZ9hvPo=:\
             DEsy/henVIPkHY/XQHPOnAqHybPGhh95ZGKCbwNYRto="
        }
    }
}

fn salted(hash: ScramHash) -> &'static [u8] {
    match hash {
        ScramHash::Sha1 => b"20 bytes, not secret",
        ScramHash::Sha256 => b"32 bytes that are not a secret..",
    }
}

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// The message unchanged, or with one part of it replaced, or another one.
    fn distort(&mut self, message: &[u8]) -> Vec<u8> {
        match self.byte() {
            0..128 => message.to_vec(),
            128..250 => {
                let start = usize::from(self.byte()).min(message.len());
                let end = (start + usize::from(self.byte() % 8)).min(message.len());
                let inserted = usize::from(self.byte() % 16).min(self.0.len());
                let (part, rest) = self.0.split_at(inserted);
                self.0 = rest;
                [&message[..start], part, &message[end..]].concat()
            }
            250.. => std::mem::take(&mut self.0).to_vec(),
        }
    }
}
