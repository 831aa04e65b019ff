//! Both sides of an authentication by SCRAM: a client and a server talk, and the input decides which messages each receives.
//!
//! Keys are derived once. A conversation ends where the client wants others, which the server does not have: so an input costs
//! microseconds, whatever iteration count it announces.

use std::sync::{Arc, LazyLock};

use cmap_core::connection::auth::{
    Authentication, Conversation, DerivedKeys, First, MAX_ITERATIONS, MIN_ITERATIONS, Nonce, Opening, Reply, ScramHash,
    ScramLogin, ScramVerifier, Step, StoredKeys,
};
use cmap_core::options::{Credential, Mechanism};

const USER: &str = "us=er,";
const PASSWORD: &str = "pencil";

static SHA_1: LazyLock<Option<User>> = LazyLock::new(|| User::new(Mechanism::ScramSha1, ScramHash::Sha1));
static SHA_256: LazyLock<Option<User>> = LazyLock::new(|| User::new(Mechanism::ScramSha256, ScramHash::Sha256));

/// What each side has of a user.
struct User {
    mechanism: Mechanism,
    stored: StoredKeys,
    derived: DerivedKeys,
}

/// Bytes that are taken from the front.
struct Input<'a>(&'a [u8]);

/// Runs one input.
///
/// # Panics
/// A property that must always hold does not: that is a finding.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte() % 4;
    let user = if choice == 0 { &*SHA_1 } else { &*SHA_256 };
    let Some(user) = user else { panic!("a user's keys are not derived") };
    if choice > 1 {
        let _ = ScramLogin::parse(input.0).map(|login| user.challenge(login));
    } else {
        user.converse(&mut input);
    }
}

impl User {
    fn new(mechanism: Mechanism, hash: ScramHash) -> Option<Self> {
        let stored = StoredKeys::new(hash, USER, &PASSWORD.into(), b"salt", MIN_ITERATIONS).ok()?;
        let (mut conversation, first) = client(mechanism)?;
        let (_, server_first) = challenge(ScramLogin::parse(&first).ok()?, &stored);
        let step = conversation.handle_reply(Reply::new(server_first.as_bytes(), false));
        let Ok(Step::Derive(request)) = step else { return None };
        Some(Self { mechanism, stored, derived: request.run() })
    }

    fn challenge(&self, login: ScramLogin) -> (ScramVerifier, String) {
        challenge(login, &self.stored)
    }

    fn converse(&self, input: &mut Input<'_>) {
        let Some((mut conversation, client_first)) = client(self.mechanism) else { return };
        let first = input.distort(&client_first);
        let Ok(login) = ScramLogin::parse(&first) else { return };
        let (verifier, server_first) = self.challenge(login);
        let heard = input.distort(server_first.as_bytes());
        let Ok(Step::Derive(request)) = conversation.handle_reply(Reply::new(&heard, input.flag())) else { return };
        let iterations = request.id().iterations();
        assert!((MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations), "{iterations} iterations were asked for");
        if request.id() != self.derived.id() {
            assert!(heard != server_first.as_bytes(), "other keys are asked for than the server's");
            return;
        }

        let proof = conversation.handle_keys(&self.derived);
        let Ok(Step::Send(client_final)) = proof else { panic!("keys that were asked for are refused: {proof:?}") };
        let sent = input.distort(client_final.as_bytes());
        let server_final = verifier.verify(&sent).ok();
        // The first messages are part of the text that both sign.
        let is_heard = first == client_first && heard == server_first.as_bytes() && sent == client_final.as_bytes();
        assert_eq!(server_final.is_some(), is_heard, "the server accepted another conversation, or refused its own");
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
}

/// A client that logs in, and its first message.
fn client(mechanism: Mechanism) -> Option<(Conversation, Vec<u8>)> {
    let credential = Arc::new(Credential::new(USER, PASSWORD.into(), "admin").with_mechanism(mechanism));
    let nonce = Nonce::from_random([1; Nonce::RANDOM_BYTES]);
    let authentication = Authentication::new(credential, nonce, MAX_ITERATIONS).ok()?;
    let Ok(Opening::Start(conversation)) = authentication.handle_hello(None::<[&str; 0]>, None) else { return None };
    let First::SaslStart { payload, .. } = conversation.first() else { return None };
    let first = payload.as_bytes().to_vec();
    Some((conversation, first))
}

fn challenge(login: ScramLogin, keys: &StoredKeys) -> (ScramVerifier, String) {
    login.challenge(&Nonce::from_random([2; Nonce::RANDOM_BYTES]), keys)
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
