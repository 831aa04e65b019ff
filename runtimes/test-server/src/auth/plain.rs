//! The server's side of PLAIN (RFC 4616): one message, `authzid NUL user NUL password`, in clear.

use std::{fmt, str};

use cmap_core::connection::auth::{MAX_MESSAGE, ScramHash};
use cmap_core::options::Secret;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::error::{ClientFault, Malformed, Message};
use super::hash::{SecretBytes, digest};

/// A client's PLAIN message, as a server reads it.
pub struct PlainLogin {
    username: String,
    password: SecretBytes,
}

impl PlainLogin {
    /// Reads a message. An authorization identity may repeat the user name, nothing else.
    pub fn parse(payload: &[u8]) -> Result<Self, ClientFault> {
        let malformed = |problem| ClientFault::Malformed { message: Message::Plain, problem };
        if payload.len() > MAX_MESSAGE {
            return Err(malformed(Malformed::TooLong));
        }
        let text = str::from_utf8(payload).map_err(|_| malformed(Malformed::NotUtf8))?;
        let mut fields = text.split('\0');
        let (Some(identity), Some(username), Some(password), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(malformed(Malformed::Fields));
        };
        if username.is_empty() {
            return Err(malformed(Malformed::Username));
        }
        if !identity.is_empty() && identity != username {
            return Err(ClientFault::AuthorizationIdentity);
        }
        Ok(Self { username: username.into(), password: Zeroizing::new(password.as_bytes().to_vec()) })
    }

    /// The user that logs in.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// Ends the conversation: right, or a wrong password. The comparison is of digests, so that its time does not
    /// reveal the length of the password either. For an unknown user answer [`ClientFault::Proof`] too.
    pub fn verify(&self, password: &Secret) -> Result<(), ClientFault> {
        let digest = |bytes| digest(ScramHash::Sha256, &[bytes]);
        let equal = digest(&self.password).ct_eq(&digest(password.expose().as_bytes()));
        if equal.into() { Ok(()) } else { Err(ClientFault::Proof) }
    }
}

impl fmt::Debug for PlainLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainLogin").field("username", &self.username).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_message_is_refused() {
        let malformed = |problem| ClientFault::Malformed { message: Message::Plain, problem };
        for (payload, fault) in [
            (&b""[..], malformed(Malformed::Fields)),
            (b"\0user", malformed(Malformed::Fields)),
            (b"\0user\0secret\0", malformed(Malformed::Fields)),
            (b"\0\0secret", malformed(Malformed::Username)),
            (b"\0user\0\xff", malformed(Malformed::NotUtf8)),
            (&[b'a'; MAX_MESSAGE + 1], malformed(Malformed::TooLong)),
            (b"root\0user\0secret", ClientFault::AuthorizationIdentity),
        ] {
            assert_eq!(PlainLogin::parse(payload).unwrap_err(), fault);
        }
        assert!(PlainLogin::parse(b"user\0user\0secret").is_ok());
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let login = PlainLogin::parse(b"\0tim=,\0tanstaaftanstaaf").unwrap();

        assert_eq!(login.username(), "tim=,");
        assert_eq!(login.verify(&"tanstaaftanstaaf".into()), Ok(()));
        assert_eq!(login.verify(&"tanstaaf".into()), Err(ClientFault::Proof));
    }
}
