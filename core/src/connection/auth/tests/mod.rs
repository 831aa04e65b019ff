//! Tests of whole conversations: the RFCs' examples, every fault of either side, and noise.

use alloc::string::String;

use super::scram::client::ScramClient;
use super::secret::{Payload, SecretBytes};
use super::{AuthError, MAX_ITERATIONS, Nonce, Reply, ScramHash, Step};

mod both_sides;
mod client_faults;
mod faults;
mod noise;
mod secrets;
mod vectors;

/// The client of the RFCs' examples: `user` with the password `pencil`, without MongoDB's digest.
fn client(hash: ScramHash, nonce: &str) -> ScramClient {
    let (password, nonce) = (SecretBytes::copy_of(b"pencil"), Nonce::from_text(nonce));
    ScramClient::with_prepared(hash, "user", password, nonce, MAX_ITERATIONS)
}

fn reply(client: &mut ScramClient, payload: &str) -> Result<Step, AuthError> {
    client.handle_reply(Reply::new(payload.as_bytes(), false))
}

/// Hands the keys in that `step` asks for, and gives the client-final message.
fn derive(client: &mut ScramClient, step: Step) -> Payload {
    let Step::Derive(request) = step else { panic!("keys are derived after server-first: {step:?}") };
    sent(client.handle_keys(&request.run()))
}

fn sent(step: Result<Step, AuthError>) -> Payload {
    match step {
        Ok(Step::Send(payload)) => payload,
        Ok(Step::Derive(_) | Step::Done) | Err(_) => panic!("something is sent: {step:?}"),
    }
}

fn text(payload: &Payload) -> String {
    String::from_utf8(payload.as_bytes().to_vec()).unwrap()
}
