//! PLAIN (RFC 4616): one message, `authzid NUL user NUL password`, in clear.
//!
//! It is as safe as the TLS around it. The client leaves the authorization identity empty (AUTH-20).

use super::error::LoginError;
use super::login::user_and_password;
use super::secret::{Payload, SecretBytes};
use crate::options::Credential;

/// The client's only message (AUTH-20).
pub(super) fn payload(credential: &Credential) -> Result<Payload, LoginError> {
    let (username, password) = user_and_password(credential)?;
    Ok(Payload::new(SecretBytes::concat(&[b"\0", username.as_bytes(), b"\0", password.expose().as_bytes()])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{CredentialError, Mechanism};

    fn credential(username: &str, password: &str) -> Credential {
        Credential::new(username, password.into(), "$external").with_mechanism(Mechanism::Plain)
    }

    #[test]
    fn a_message_is_name_and_password_behind_nuls() {
        let payload = payload(&credential("tim=,", "tanstaaftanstaaf")).unwrap();
        assert_eq!(payload.as_bytes(), b"\0tim=,\0tanstaaftanstaaf");
    }

    #[test]
    fn what_the_fields_cannot_carry_is_refused() {
        let nobody = CredentialError::NoUsername { mechanism: Some(Mechanism::Plain), rule: "AUTH-20" };
        for (username, password, error) in [
            ("", "secret", nobody.into()),
            ("a\0b", "secret", CredentialError::NulInUsername.into()),
            ("user", "se\0cret", CredentialError::NulInPassword.into()),
        ] {
            assert_eq!(payload(&credential(username, password)), Err(error));
        }
    }
}
