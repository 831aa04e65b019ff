//! MONGODB-OIDC in a credential: where its access tokens come from (OIDC-9).

use alloc::string::String;

use super::credential::{Credential, CredentialError};
use super::mechanism::Mechanism;

/// Where a program gets its access tokens from without a callback of its own: `ENVIRONMENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TokenEnvironment {
    /// `test`: a file, for tests of drivers.
    Test,
    /// `azure`: Azure's service for the identities of machines, over HTTP.
    Azure,
    /// `gcp`: Google Cloud's service for the identities of machines, over HTTP.
    Gcp,
    /// `k8s`: a file that Kubernetes keeps up.
    K8s,
}

impl TokenEnvironment {
    const NAMED: [(&'static str, Self); 4] =
        [("test", Self::Test), ("azure", Self::Azure), ("gcp", Self::Gcp), ("k8s", Self::K8s)];

    /// Its name in `authMechanismProperties`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
            Self::K8s => "k8s",
        }
    }
}

impl Credential {
    /// A user of MONGODB-OIDC, whose access tokens a callback fetches. The callback learns the user name.
    pub fn oidc(username: Option<String>) -> Self {
        Self { mechanism: Some(Mechanism::MongoDbOidc), ..Self::x509(username) }
    }

    /// Where access tokens come from without a callback; `None` if the credential does not say.
    pub fn token_environment(&self) -> Option<TokenEnvironment> {
        let name = self.properties.get("ENVIRONMENT")?.expose();
        TokenEnvironment::NAMED.iter().find(|(known, _)| *known == name).map(|(_, environment)| *environment)
    }

    /// Whether access tokens come from one place, if the mechanism is MONGODB-OIDC: an `ENVIRONMENT`, or a callback (OIDC-9).
    ///
    /// # Errors
    /// There is neither, or both.
    pub fn check_token_source(&self, has_callback: bool) -> Result<(), CredentialError> {
        match (self.mechanism, self.token_environment()) {
            (Some(Mechanism::MongoDbOidc), None) if !has_callback => Err(CredentialError::NoTokenSource),
            (Some(Mechanism::MongoDbOidc), Some(_)) if has_callback => Err(CredentialError::TwoTokenSources),
            _ => Ok(()),
        }
    }

    /// Whether the properties of MONGODB-OIDC go together (OIDC-9).
    pub(super) fn check_environment(&self) -> Result<(), CredentialError> {
        if self.mechanism != Some(Mechanism::MongoDbOidc) {
            return Ok(());
        }
        let environment = self.token_environment();
        if environment.is_none() && self.properties.get("ENVIRONMENT").is_some() {
            return Err(CredentialError::UnknownEnvironment);
        }
        let takes_username = environment.is_none_or(|environment| environment == TokenEnvironment::Azure);
        if self.username.is_some() && !takes_username {
            return Err(CredentialError::UsernameWithEnvironment);
        }
        let needs_resource = matches!(environment, Some(TokenEnvironment::Azure | TokenEnvironment::Gcp));
        match (self.properties.get("TOKEN_RESOURCE").is_some(), needs_resource) {
            (false, true) => Err(CredentialError::NoTokenResource),
            (true, false) => Err(CredentialError::TokenResourceGiven),
            (true, true) | (false, false) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;
    use crate::options::ClientOptions;

    /// Why a credential of these properties cannot be used; empty if it can.
    fn problem(user: &str, properties: &str) -> String {
        let text = format!("mongodb://{user}h/?authMechanism=MONGODB-OIDC&authMechanismProperties={properties}");
        ClientOptions::parse(&text).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn properties_that_go_together_are_no_error_oidc_9() {
        for (user, properties) in [
            ("", "ENVIRONMENT:test"),
            ("", "ENVIRONMENT:k8s"),
            ("", "ENVIRONMENT:gcp,TOKEN_RESOURCE:a"),
            ("", "ENVIRONMENT:azure,TOKEN_RESOURCE:mongodb://a:b"),
            ("client@", "ENVIRONMENT:azure,TOKEN_RESOURCE:a"),
        ] {
            assert_eq!(problem(user, properties), "", "{user}{properties}");
        }
    }

    #[test]
    fn properties_that_do_not_go_together_are_an_error_oidc_9() {
        for (user, properties, expected) in [
            ("", "ENVIRONMENT:hunter2", "ENVIRONMENT is none of test, azure, gcp and k8s"),
            ("me@", "ENVIRONMENT:test", "the user name goes with ENVIRONMENT:azure alone"),
            ("me@", "ENVIRONMENT:k8s", "the user name goes with ENVIRONMENT:azure alone"),
            ("", "ENVIRONMENT:azure", "TOKEN_RESOURCE is missing"),
            ("", "ENVIRONMENT:gcp", "TOKEN_RESOURCE is missing"),
            (
                "",
                "ENVIRONMENT:k8s,TOKEN_RESOURCE:a",
                "TOKEN_RESOURCE goes with ENVIRONMENT:azure and ENVIRONMENT:gcp alone",
            ),
            ("me:hunter2@", "ENVIRONMENT:azure,TOKEN_RESOURCE:a", "MONGODB-OIDC takes no password"),
        ] {
            let problem = problem(user, properties);

            assert!(problem.contains(expected) && !problem.contains("hunter2"), "{properties}: {problem}");
        }
    }

    #[test]
    fn tokens_come_from_one_place_oidc_9() {
        let callback = Credential::oidc(Some("me".into()));
        let (options, _) =
            ClientOptions::parse("mongodb://h/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:k8s")
                .unwrap();
        let file = options.credential.unwrap();

        assert_eq!((callback.check(), callback.check_token_source(true)), (Ok(()), Ok(())));
        assert_eq!(callback.check_token_source(false), Err(CredentialError::NoTokenSource));
        assert_eq!((file.check(), file.check_token_source(false)), (Ok(()), Ok(())));
        assert_eq!(file.check_token_source(true), Err(CredentialError::TwoTokenSources));
        assert_eq!(Credential::x509(None).check_token_source(false), Ok(()));
    }

    #[test]
    fn every_environment_has_its_name() {
        for (name, environment) in TokenEnvironment::NAMED {
            assert_eq!(environment.name(), name);
        }
    }
}
