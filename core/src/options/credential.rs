//! The credential of a connection string: the user, the mechanism and the database to authenticate against.

use alloc::string::String;

use thiserror::Error;

use super::mechanism::{EXTERNAL, Mechanism, MechanismProperties};
use super::secret::Secret;
use super::value::has_nul;
use crate::error_text::readable_debug;

/// The input of authentication.
///
/// Its `Debug` form shows the user name, but neither the password nor the values of properties.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Credential {
    /// The user's name, never empty. Only X.509, AWS and OIDC do without.
    pub username: Option<String>,
    /// The password. A connection string may leave it out, to be filled in from a safer place.
    pub password: Option<Secret>,
    /// The database that knows the user: `authSource`, else as the mechanism says (AUTH-18 to AUTH-20, X-10).
    pub source: String,
    /// The mechanism; `None` = the best SCRAM that the server offers for the user (AUTH-6, AUTH-7).
    pub mechanism: Option<Mechanism>,
    /// Further properties; empty for every mechanism but GSSAPI, AWS and OIDC.
    pub properties: MechanismProperties,
    /// Whether a connection string made it, and not code, which counts more than a TXT record (DNS-9).
    pub(crate) is_of_connection_string: bool,
}

/// User name and password, decoded.
#[derive(Debug)]
pub(super) struct UserInfo {
    pub(super) username: String,
    pub(super) password: Option<Secret>,
}

/// Options of authentication as they were set, before they make a [`Credential`]. Alone they make none (AUTH-3).
#[derive(Clone, Debug, Default)]
pub(super) struct AuthOptions {
    /// `authMechanism`.
    pub(super) mechanism: Option<Mechanism>,
    /// `authSource`; empty is an error (AUTH-4).
    pub(super) source: Option<String>,
    /// `authMechanismProperties`.
    pub(super) properties: Option<MechanismProperties>,
    /// The source that the credential of the connection string has because no other was named.
    pub(super) derived_source: Option<String>,
}

/// The credential is incomplete or contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// `authSource` is empty.
    #[error("option authSource is empty; write authSource=database, or remove it")]
    EmptySource,
    /// The name of the user's database has a NUL.
    #[error("the database of the user has a NUL in its name; write authSource=database without %00")]
    NulInSource,
    /// The user name has a NUL, where the messages of the mechanisms end it (AUTH-23).
    #[error("the user name has a NUL; write it without %00")]
    NulInUsername,
    /// The password has a NUL, where PLAIN ends it (AUTH-23).
    #[error("the password has a NUL, which PLAIN cannot carry; write it without %00, or use SCRAM-SHA-256")]
    NulInPassword,
    /// The mechanism needs a user name.
    #[error("{} needs a user name that is not empty; write mongodb://user:password@host", named(*mechanism))]
    NoUsername {
        /// The mechanism; `None` = the default.
        mechanism: Option<Mechanism>,
        /// The rule's id.
        rule: &'static str,
    },
    /// The mechanism can do without a user name, but one was given, and is empty.
    #[error("the user name is empty; give one, or none at all")]
    EmptyUsername,
    /// The mechanism needs a password.
    #[error("{} needs a password; write mongodb://user:password@host, or set it in code",
        named(*mechanism))]
    NoPassword {
        /// The mechanism; `None` = the default.
        mechanism: Option<Mechanism>,
    },
    /// The mechanism has no use for a password.
    #[error("{} takes no password; write mongodb://user@host, or mongodb://host", named(Some(*mechanism)))]
    PasswordGiven {
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// The mechanism has no properties.
    #[error("{} has no properties; remove authMechanismProperties", named(*mechanism))]
    PropertiesGiven {
        /// The mechanism; `None` = the default.
        mechanism: Option<Mechanism>,
    },
    /// The users of the mechanism are not kept in a database.
    #[error("{} has its users in $external alone; write authSource=$external, or remove it",
        named(Some(*mechanism)))]
    SourceNotExternal {
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// Access tokens come from nowhere (OIDC-9).
    #[error(
        "MONGODB-OIDC needs a place where access tokens come from; bring a callback (Builder::oidc_callback), or write \
         authMechanismProperties=ENVIRONMENT:k8s"
    )]
    NoTokenSource,
    /// Access tokens would come from two places (OIDC-9).
    #[error("ENVIRONMENT cannot be used with a callback that brings access tokens; remove one of them")]
    TwoTokenSources,
    /// There is no environment of that name (OIDC-9).
    #[error("ENVIRONMENT is none of test, azure, gcp and k8s; write one of them, or remove it and bring a callback")]
    UnknownEnvironment,
    /// The environment knows whom it speaks for (OIDC-9).
    #[error("the user name goes with ENVIRONMENT:azure alone; remove it, or bring a callback instead")]
    UsernameWithEnvironment,
    /// The environment has to know what its tokens are for (OIDC-9).
    #[error("TOKEN_RESOURCE is missing, which ENVIRONMENT:azure and ENVIRONMENT:gcp need; add it")]
    NoTokenResource,
    /// The environment's tokens are for this server already (OIDC-9).
    #[error("TOKEN_RESOURCE goes with ENVIRONMENT:azure and ENVIRONMENT:gcp alone; remove it")]
    TokenResourceGiven,
}

readable_debug!(CredentialError);

impl Credential {
    /// A user of the database `source` who logs in with the default mechanism.
    pub fn new(username: impl Into<String>, password: Secret, source: impl Into<String>) -> Self {
        Self {
            username: Some(username.into()),
            password: Some(password),
            source: source.into(),
            mechanism: None,
            properties: MechanismProperties::default(),
            is_of_connection_string: false,
        }
    }

    /// The subject of the client's certificate. If it is given, `username` is sent along (AUTH-19).
    pub fn x509(username: Option<String>) -> Self {
        Self {
            username,
            password: None,
            source: EXTERNAL.into(),
            mechanism: Some(Mechanism::MongoDbX509),
            properties: MechanismProperties::default(),
            is_of_connection_string: false,
        }
    }

    /// Sets the mechanism.
    #[must_use]
    pub fn with_mechanism(mut self, mechanism: Mechanism) -> Self {
        self.mechanism = Some(mechanism);
        self
    }

    /// The credential that these make. A missing password is not an error here: it may be filled in later.
    pub(super) fn resolve(
        user: Option<UserInfo>,
        auth: &AuthOptions,
        database: Option<&str>,
    ) -> Result<Option<Self>, CredentialError> {
        auth.source.as_deref().map_or(Ok(()), Self::check_source)?;
        let mechanism = auth.mechanism;
        let (username, password) = match user {
            // AUTH-3: neither a database nor a source asks for authentication.
            None if mechanism.is_none() => return Ok(None),
            None => (None, None),
            Some(user) => (Some(user.username).filter(|name| !name.is_empty()), user.password),
        };
        let (uses_database, default) = mechanism.unwrap_or(Mechanism::ScramSha256).source();
        let source = auth.source.as_deref().or(database.filter(|_| uses_database)).unwrap_or(default).into();
        let properties = auth.properties.clone().unwrap_or_default();
        let credential = Self { username, password, source, mechanism, properties, is_of_connection_string: true };
        credential.check_without_password()?;
        Ok(Some(credential))
    }

    /// Whether an `authSource` names a database (AUTH-4).
    pub(super) fn check_source(source: &str) -> Result<(), CredentialError> {
        match source {
            "" => Err(CredentialError::EmptySource),
            _ if has_nul(source) => Err(CredentialError::NulInSource),
            _ => Ok(()),
        }
    }

    /// Whether its mechanism has its users in `$external` alone.
    pub(super) fn is_external(&self) -> bool {
        self.mechanism.is_some_and(|mechanism| !mechanism.source().0)
    }

    /// Whether it has all that its mechanism needs, and nothing that it has no use for (AUTH-4, AUTH-18 to AUTH-20).
    pub fn check(&self) -> Result<(), CredentialError> {
        self.check_without_password()?;
        let needs_password = match self.mechanism {
            None | Some(Mechanism::ScramSha1 | Mechanism::ScramSha256 | Mechanism::Plain) => true,
            Some(Mechanism::MongoDbX509 | Mechanism::Gssapi | Mechanism::MongoDbAws | Mechanism::MongoDbOidc) => false,
        };
        if needs_password && self.password.is_none() {
            return Err(CredentialError::NoPassword { mechanism: self.mechanism });
        }
        Ok(())
    }

    pub(super) fn check_without_password(&self) -> Result<(), CredentialError> {
        if has_nul(&self.source) {
            return Err(CredentialError::NulInSource);
        }
        let mechanism = self.mechanism;
        // The default is one of the SCRAM mechanisms, and these have the same needs.
        let kind = mechanism.unwrap_or(Mechanism::ScramSha256);
        let nobody = self.username.as_deref().is_none_or(str::is_empty);
        if let Some(rule) = kind.needs_username().filter(|_| nobody) {
            return Err(CredentialError::NoUsername { mechanism, rule });
        }
        if self.username.as_deref().is_some_and(has_nul) {
            return Err(CredentialError::NulInUsername);
        }
        let has_nul_in_password = self.password.as_ref().is_some_and(|password| has_nul(password.expose()));
        if kind == Mechanism::Plain && has_nul_in_password {
            return Err(CredentialError::NulInPassword);
        }
        // A connection string cannot say this, but code can.
        if self.username.as_deref() == Some("") {
            return Err(CredentialError::EmptyUsername);
        }
        if !kind.takes_password() && self.password.is_some() {
            return Err(CredentialError::PasswordGiven { mechanism: kind });
        }
        if !kind.takes_properties() && !self.properties.is_empty() {
            return Err(CredentialError::PropertiesGiven { mechanism });
        }
        if self.is_external() && self.source != EXTERNAL {
            return Err(CredentialError::SourceNotExternal { mechanism: kind });
        }
        self.check_environment()
    }
}

fn named(mechanism: Option<Mechanism>) -> &'static str {
    mechanism.map_or("the default mechanism, SCRAM,", Mechanism::name)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;
    use crate::options::{ClientOptions, ConnectionStringError};

    fn parse(rest: &str) -> Result<Option<Credential>, String> {
        match ClientOptions::parse(&format!("mongodb://{rest}")) {
            Ok((options, _)) => Ok(options.credential),
            Err(ConnectionStringError::Credential(error)) => Err(error.to_string()),
            Err(other) => Err(format!("another error: {other}")),
        }
    }

    #[test]
    fn the_source_depends_on_the_mechanism() {
        for (rest, source) in [
            ("a:b@h", "admin"),
            ("a:b@h/db", "db"),
            ("a:b@h/db?authSource=src", "src"),
            ("a:b@h/?authMechanism=PLAIN", "$external"),
            ("a:b@h/db?authMechanism=PLAIN", "db"),
            ("a@h/db?authMechanism=MONGODB-X509", "$external"),
        ] {
            assert_eq!(parse(rest).unwrap().unwrap().source, source, "{rest}");
        }
    }

    #[test]
    fn neither_a_database_nor_a_source_makes_a_credential() {
        assert!(parse("h/db").unwrap().is_none());
        assert!(parse("h/db?authSource=src").unwrap().is_none());
    }

    #[test]
    fn what_a_mechanism_lacks_or_does_not_take_is_an_error() {
        for (rest, expected) in [
            ("@h", "the default mechanism, SCRAM, needs a user name that is not empty"),
            (":b@h", "the default mechanism, SCRAM, needs a user name"),
            ("h/?authMechanism=PLAIN", "PLAIN needs a user name that is not empty"),
            ("a%00:b@h", "the user name has a NUL"),
            ("a%00:b@h/?authMechanism=PLAIN", "the user name has a NUL"),
            ("a%00@h/?authMechanism=MONGODB-X509", "the user name has a NUL"),
            ("a:b%00@h/?authMechanism=PLAIN", "the password has a NUL, which PLAIN cannot carry"),
            ("a:b@h/?authMechanism=MONGODB-X509", "MONGODB-X509 takes no password"),
            ("h/?authMechanism=MONGODB-X509&authSource=a", "MONGODB-X509 has its users in $external alone"),
            ("a:b@h/?authMechanismProperties=SERVICE_NAME:x", "has no properties; remove"),
            ("h/?authSource=", "option authSource is empty"),
            ("h/?authSource=a%00b", "the database of the user has a NUL in its name"),
            ("a:b@h/?authSource=a%00b", "the database of the user has a NUL in its name"),
        ] {
            let error = parse(rest).unwrap_err();
            assert!(error.contains(expected), "{rest}: {error}");
        }
    }

    #[test]
    fn a_missing_password_may_be_filled_in_later() {
        let mut credential = parse("a@h").unwrap().unwrap();

        assert_eq!(credential.check(), Err(CredentialError::NoPassword { mechanism: None }));
        credential.password = Some("b".into());
        assert_eq!(credential.check(), Ok(()));
    }

    #[test]
    fn a_credential_made_in_code_is_checked_alike() {
        let mut credential = Credential::new("alice", "hunter2".into(), "admin");

        assert_eq!(credential.check(), Ok(()));
        credential.mechanism = Some(Mechanism::MongoDbX509);
        assert_eq!(credential.check(), Err(CredentialError::PasswordGiven { mechanism: Mechanism::MongoDbX509 }));
        assert_eq!(Credential::x509(Some("CN=client".into())).check(), Ok(()));
        assert_eq!(Credential::x509(Some(String::new())).check(), Err(CredentialError::EmptyUsername));
    }

    #[test]
    fn an_empty_user_name_is_none_where_none_is_needed() {
        assert_eq!(parse("@h/?authMechanism=MONGODB-X509").unwrap().unwrap().username, None);
    }

    #[test]
    fn debug_shows_who_but_not_the_password() {
        let shown = format!("{:?}", parse("alice:hunter2@h").unwrap());

        assert!(shown.contains("alice") && !shown.contains("hunter2"), "{shown}");
    }
}
