//! Which mechanisms this build can log in by.

use cmap_core::options::{Credential, Mechanism};

use crate::error::ClientError;

/// Refuses a mechanism that cannot be carried out before anything is sent.
pub(crate) fn check_mechanism(credential: Option<&Credential>) -> Result<(), ClientError> {
    let Some(credential) = credential else { return Ok(()) };
    // A credential that names none is for SCRAM (AUTH-7).
    let mechanism = credential.mechanism.unwrap_or(Mechanism::ScramSha256);
    let option = match mechanism {
        _ if mechanism.is_built_in() => return Ok(()),
        Mechanism::ScramSha1 | Mechanism::ScramSha256 => {
            return Err(ClientError::NotBuiltIn { what: "a login with a password (SCRAM)", feature: "auth" });
        }
        Mechanism::Gssapi => "authMechanism=GSSAPI",
        Mechanism::MongoDbAws => "authMechanism=MONGODB-AWS",
        Mechanism::MongoDbOidc => "authMechanism=MONGODB-OIDC",
        Mechanism::Plain | Mechanism::MongoDbX509 | _ => return Ok(()),
    };
    Err(ClientError::Unsupported {
        option,
        remedy: "use SCRAM-SHA-256, SCRAM-SHA-1, PLAIN or MONGODB-X509, or bring the mechanism by Builder::mechanism",
    })
}

#[cfg(test)]
mod tests {
    use cmap_core::options::ClientOptions;

    use super::*;

    fn checked(uri: &str) -> Result<(), ClientError> {
        check_mechanism(ClientOptions::parse(uri).unwrap().0.credential.as_ref())
    }

    #[cfg(not(feature = "auth"))]
    #[test]
    fn a_password_is_refused_with_the_name_of_the_feature() {
        for uri in ["mongodb://u:p@h/", "mongodb://u:p@h/?authMechanism=SCRAM-SHA-1"] {
            let error = checked(uri).unwrap_err().to_string();

            assert!(error.contains("enable the feature `auth`"), "{error}");
        }
    }

    #[test]
    fn mechanisms_without_a_hash_are_in_every_build() {
        assert!(checked("mongodb://h/").is_ok());
        assert!(checked("mongodb://h/?authMechanism=MONGODB-X509&tls=true").is_ok());
        assert!(checked("mongodb://u:p@h/?authMechanism=PLAIN&tls=true").is_ok());
    }

    #[test]
    fn a_mechanism_of_no_build_is_refused_with_those_to_use() {
        let error = checked("mongodb://u@h/?authMechanism=GSSAPI&authSource=$external").unwrap_err().to_string();

        assert!(error.contains("GSSAPI") && error.contains("Builder::mechanism"), "{error}");
    }
}
