//! How each mechanism prepares a password before SCRAM's own arithmetic begins.

use stringprep::saslprep;

use super::super::error::LoginError;
use super::super::secret::SecretBytes;
use super::hash::{ScramHash, md5_hex};
use crate::options::Secret;

impl ScramHash {
    /// The key material of a user's password.
    ///
    /// SCRAM-SHA-1 uses MongoDB's old digest, of name and password as they are (AUTH-11); SCRAM-SHA-256 uses the password
    /// prepared by SASLprep, and never prepares the name (AUTH-12).
    pub(super) fn prepare(self, username: &str, password: &Secret) -> Result<SecretBytes, LoginError> {
        let password = password.expose();
        match self {
            Self::Sha1 => Ok(md5_hex(&[username.as_bytes(), b":mongo:", password.as_bytes()])),
            // The error would name the character: a part of the password. An owned result is wiped with the secret it
            // becomes.
            Self::Sha256 => match saslprep(password) {
                Ok(prepared) => Ok(SecretBytes::from_vec(prepared.into_owned().into_bytes())),
                Err(_) => Err(LoginError::PasswordProhibited),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saslprep_changes_what_looks_the_same() {
        for (password, prepared) in [
            ("IX", "IX"),
            ("\u{2168}", "IX"),
            ("I\u{AD}X", "IX"),
            ("\u{AD}", ""),
            ("USER", "USER"),
            ("\u{AA}", "a"),
            ("a\u{A0}b", "a b"),
        ] {
            let material = ScramHash::Sha256.prepare("user", &password.into()).unwrap();
            assert_eq!(material.as_bytes(), prepared.as_bytes(), "{password:?}");
        }
    }

    #[test]
    fn saslprep_prohibits_controls_and_mixed_directions_and_sha_1_does_not_care() {
        for password in ["\u{7}", "a\0b", "\u{627}1", "\u{E000}", "\u{FFFD}", "\u{221}"] {
            let error = ScramHash::Sha256.prepare("user", &password.into()).unwrap_err();
            assert_eq!(error, LoginError::PasswordProhibited, "{password:?}");
            assert!(ScramHash::Sha1.prepare("user", &password.into()).is_ok());
        }
    }

    #[test]
    fn sha_1_takes_the_digest_of_name_and_password_unprepared() {
        let plain = ScramHash::Sha1.prepare("user", &"IX".into()).unwrap();
        let roman = ScramHash::Sha1.prepare("user", &"\u{2168}".into()).unwrap();

        assert_eq!(plain, md5_hex(&[b"user:mongo:IX"]));
        assert_ne!(plain, roman);
    }
}
