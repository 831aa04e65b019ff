//! MONGODB-OIDC: one message, a document with an access token (OIDC-7).

use alloc::vec::Vec;

use super::secret::{Payload, SecretBytes};
use crate::options::Secret;

/// An access token, and what a refusal of it means (OIDC-4, OIDC-5).
#[derive(Clone, Debug)]
pub enum AccessToken {
    /// It was in the client's cache, and may have expired: if the server refuses it, another one is asked for.
    Cached(Secret),
    /// It was fetched just now: if the server refuses it, the login has failed.
    Fetched(Secret),
}

impl AccessToken {
    /// The token itself.
    pub fn secret(&self) -> &Secret {
        match self {
            Self::Cached(token) | Self::Fetched(token) => token,
        }
    }
}

/// The client's only message: the document `{ jwt: token }`. It is made in its final size, so that no copy is left behind.
pub(crate) fn payload(token: &Secret) -> Payload {
    const NAME: &[u8] = b"\x02jwt\0";
    let text = token.expose().as_bytes();
    let document = 4 + NAME.len() + 4 + text.len() + 2;
    let mut bytes = Vec::with_capacity(document);
    bytes.extend_from_slice(&length(document));
    bytes.extend_from_slice(NAME);
    bytes.extend_from_slice(&length(text.len() + 1));
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(&[0, 0]);
    Payload::new(SecretBytes::from_vec(bytes))
}

/// A length as BSON writes it. One of more than 31 bits fits no message.
fn length(length: usize) -> [u8; 4] {
    i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_the_specifications_example_oidc_7() {
        // FwAAAAJqd3QACQAAAGFiY2QxMjM0AAA= in `auth.md`.
        assert_eq!(payload(&"abcd1234".into()).as_bytes(), b"\x17\0\0\0\x02jwt\0\x09\0\0\0abcd1234\0\0");
    }
}
