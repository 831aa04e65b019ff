//! The parts of a credential that the messages of the mechanisms carry, once it is checked.

use super::error::LoginError;
use crate::options::{Credential, CredentialError, Secret};

/// User name and password, as SCRAM and PLAIN need them (AUTH-18, AUTH-20).
pub(super) fn user_and_password(credential: &Credential) -> Result<(&str, &Secret), LoginError> {
    credential.check()?;
    // After the check neither is missing; the types do not know it.
    let (Some(username), Some(password)) = (credential.username.as_deref(), credential.password.as_ref()) else {
        return Err(CredentialError::NoPassword { mechanism: credential.mechanism }.into());
    };
    Ok((username, password))
}

/// The user of MONGODB-X509, if any (AUTH-19).
pub(super) fn certificate_user(credential: &Credential) -> Result<Option<&str>, LoginError> {
    credential.check()?;
    Ok(credential.username.as_deref())
}
