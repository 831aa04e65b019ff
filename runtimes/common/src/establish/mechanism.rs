//! Which mechanisms this build can log in by.

use cmap_core::options::{ConnectionStringError, Credential, Mechanism, TokenEnvironment};

use crate::error::ClientError;

/// Refuses a mechanism that cannot be carried out before anything is sent. A callback may bring access tokens.
pub(crate) fn check_mechanism(credential: Option<&Credential>, has_callback: bool) -> Result<(), ClientError> {
    let Some(credential) = credential else { return Ok(()) };
    credential.check_token_source(has_callback).map_err(ConnectionStringError::from)?;
    check_environment(credential)?;
    // A credential that names none is for SCRAM (AUTH-7).
    let mechanism = credential.mechanism.unwrap_or(Mechanism::ScramSha256);
    let option = match mechanism {
        _ if mechanism.is_built_in() => return Ok(()),
        Mechanism::ScramSha1 | Mechanism::ScramSha256 => {
            return Err(ClientError::NotBuiltIn { what: "a login with a password (SCRAM)", feature: "auth" });
        }
        Mechanism::Gssapi => "authMechanism=GSSAPI",
        Mechanism::MongoDbAws => "authMechanism=MONGODB-AWS",
        Mechanism::Plain | Mechanism::MongoDbX509 | Mechanism::MongoDbOidc | _ => return Ok(()),
    };
    Err(ClientError::Unsupported {
        option,
        remedy: "use SCRAM-SHA-256, SCRAM-SHA-1, PLAIN, MONGODB-X509 or MONGODB-OIDC, or bring the mechanism by Builder::mechanism",
    })
}

/// Refuses the environments whose access tokens come over HTTP (OIDC-9).
fn check_environment(credential: &Credential) -> Result<(), ClientError> {
    let option = match credential.token_environment().filter(|_| credential.mechanism == Some(Mechanism::MongoDbOidc)) {
        Some(TokenEnvironment::Azure) => "ENVIRONMENT:azure",
        Some(TokenEnvironment::Gcp) => "ENVIRONMENT:gcp",
        Some(_) | None => return Ok(()),
    };
    Err(ClientError::Unsupported {
        option,
        remedy: "its access tokens come over HTTP, which is not built in: fetch them in a callback (Builder::oidc_callback), \
                 and remove ENVIRONMENT and TOKEN_RESOURCE",
    })
}

#[cfg(test)]
mod tests {
    use cmap_core::options::ClientOptions;

    use super::*;

    fn checked(uri: &str) -> Result<(), ClientError> {
        check_mechanism(ClientOptions::parse(uri).unwrap().0.credential.as_ref(), false)
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

    #[test]
    fn an_environment_over_http_is_refused_with_the_way_to_bring_a_callback_oidc_9() {
        for environment in ["azure", "gcp"] {
            let properties = format!("authMechanismProperties=ENVIRONMENT:{environment},TOKEN_RESOURCE:a");
            let error =
                checked(&format!("mongodb://h/?authMechanism=MONGODB-OIDC&{properties}")).unwrap_err().to_string();

            assert!(error.contains(environment) && error.contains("Builder::oidc_callback"), "{error}");
        }
    }

    #[test]
    fn access_tokens_come_from_a_file_or_a_callback_oidc_9() {
        let nowhere = "mongodb://h/?authMechanism=MONGODB-OIDC";
        let file = "mongodb://h/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s";
        let with_callback = |uri| check_mechanism(ClientOptions::parse(uri).unwrap().0.credential.as_ref(), true);

        assert!(checked(file).is_ok() && with_callback(nowhere).is_ok());
        assert!(checked(nowhere).unwrap_err().to_string().contains("Builder::oidc_callback"));
        assert!(with_callback(file).unwrap_err().to_string().contains("cannot be used with a callback"));
    }
}
