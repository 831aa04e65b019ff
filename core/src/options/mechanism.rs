//! The mechanisms of authentication: their names, what each needs, and the properties that some have.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::secret::Secret;
use super::value::{Expected, Reading, key_and_value};

/// How a client proves its identity. Not all mechanisms can be carried out: a connection refuses those that it does not
/// know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// `SCRAM-SHA-1`.
    ScramSha1,
    /// `SCRAM-SHA-256`.
    ScramSha256,
    /// `PLAIN`: the password itself, so only over TLS.
    Plain,
    /// `MONGODB-X509`: the certificate of the TLS connection.
    MongoDbX509,
    /// `GSSAPI`: Kerberos.
    Gssapi,
    /// `MONGODB-AWS`.
    MongoDbAws,
    /// `MONGODB-OIDC`.
    MongoDbOidc,
}

/// Properties of a mechanism. Names are compared without regard to case (AUTH-5); values are treated as secret.
///
/// In a connection string a value cannot contain a comma, encoded or not (URI-8).
#[derive(Clone, Debug, Default)]
pub struct MechanismProperties(Vec<(&'static str, Secret)>);

/// The source of mechanisms whose users the server does not keep.
pub(super) const EXTERNAL: &str = "$external";

/// The known properties; only their values can be anything.
const PROPERTIES: [&str; 7] = [
    "SERVICE_NAME",
    "SERVICE_REALM",
    "SERVICE_HOST",
    "CANONICALIZE_HOST_NAME",
    "AWS_SESSION_TOKEN",
    "ENVIRONMENT",
    "TOKEN_RESOURCE",
];

impl Mechanism {
    /// The mechanisms by their names.
    pub(super) const NAMED: [(&'static str, Self); 7] = [
        ("SCRAM-SHA-256", Self::ScramSha256),
        ("SCRAM-SHA-1", Self::ScramSha1),
        ("PLAIN", Self::Plain),
        ("MONGODB-X509", Self::MongoDbX509),
        ("GSSAPI", Self::Gssapi),
        ("MONGODB-AWS", Self::MongoDbAws),
        ("MONGODB-OIDC", Self::MongoDbOidc),
    ];

    /// Its name in options and commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::ScramSha1 => "SCRAM-SHA-1",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::Plain => "PLAIN",
            Self::MongoDbX509 => "MONGODB-X509",
            Self::Gssapi => "GSSAPI",
            Self::MongoDbAws => "MONGODB-AWS",
            Self::MongoDbOidc => "MONGODB-OIDC",
        }
    }

    /// The rule that requires a user name, if one does.
    pub(super) fn needs_username(self) -> Option<&'static str> {
        match self {
            Self::ScramSha1 | Self::ScramSha256 => Some("AUTH-18"),
            Self::Plain => Some("AUTH-20"),
            Self::Gssapi => Some("AUTH-4"),
            Self::MongoDbX509 | Self::MongoDbAws | Self::MongoDbOidc => None,
        }
    }

    /// The default source if `authSource` is missing: whether the database counts, and the source without one.
    pub(super) fn source(self) -> (bool, &'static str) {
        match self {
            Self::ScramSha1 | Self::ScramSha256 => (true, "admin"),
            Self::Plain => (true, EXTERNAL),
            Self::MongoDbX509 | Self::Gssapi | Self::MongoDbAws | Self::MongoDbOidc => (false, EXTERNAL),
        }
    }

    /// Whether this build can carry it out: SCRAM needs the feature `auth`, and some mechanisms are brought by the user.
    pub fn is_built_in(self) -> bool {
        match self {
            Self::ScramSha1 | Self::ScramSha256 => cfg!(feature = "auth"),
            Self::Plain | Self::MongoDbX509 | Self::MongoDbOidc => true,
            Self::Gssapi | Self::MongoDbAws => false,
        }
    }

    pub(super) fn takes_password(self) -> bool {
        !matches!(self, Self::MongoDbX509 | Self::MongoDbOidc)
    }

    pub(super) fn takes_properties(self) -> bool {
        matches!(self, Self::Gssapi | Self::MongoDbAws | Self::MongoDbOidc)
    }
}

impl MechanismProperties {
    /// Sets the property `name`, also to a value with a comma; `None` if there is no property of that name.
    ///
    /// ```
    /// use cmap_core::options::{Credential, MechanismProperties, Secret};
    ///
    /// let mut credential = Credential::oidc(None);
    /// let resource = MechanismProperties::default().with("TOKEN_RESOURCE", Secret::from("api://a,b"));
    /// credential.properties = resource.unwrap_or_default();
    /// assert_eq!(credential.properties.get("TOKEN_RESOURCE").map(Secret::expose), Some("api://a,b"));
    /// ```
    #[must_use]
    pub fn with(mut self, name: &str, value: Secret) -> Option<Self> {
        let known = *PROPERTIES.iter().find(|known| known.eq_ignore_ascii_case(name))?;
        self.0.retain(|(own, _)| *own != known);
        self.0.push((known, value));
        Some(self)
    }

    /// The value of the property `name`.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Names in upper case, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Secret)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads `name:value,name:value` (URI-8). Of a repeated name the last value counts.
pub(super) fn properties(reading: &Reading<'_>) -> Result<MechanismProperties, Expected> {
    let mut properties = MechanismProperties::default();
    for entry in reading.text.split(',') {
        let (name, value) = key_and_value(entry).ok_or("name:value with commas between several, none in a value")?;
        let more = properties.with(name, value.into());
        properties = more.ok_or_else(|| Cow::Owned(alloc::format!("names among {}", PROPERTIES.join(", "))))?;
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn read(text: &str) -> Result<MechanismProperties, Expected> {
        properties(&Reading { option: "option", text, warnings: &mut Vec::new() })
    }

    #[test]
    fn every_mechanism_has_its_name() {
        for (name, mechanism) in Mechanism::NAMED {
            assert_eq!(mechanism.name(), name);
        }
    }

    #[test]
    fn properties_are_found_in_any_case() {
        let properties = read("token_resource:mongodb://x,SERVICE_NAME:a,service_name:b").unwrap();

        assert_eq!(properties.get("Token_Resource").map(Secret::expose), Some("mongodb://x"));
        assert_eq!(properties.get("SERVICE_NAME").map(Secret::expose), Some("b"));
        assert!(properties.get("ENVIRONMENT").is_none());
        assert_eq!(properties.iter().count(), 2);
    }

    #[test]
    fn code_sets_values_with_commas_of_known_properties_alone() {
        let set = |properties: MechanismProperties, name: &str| properties.with(name, Secret::from("api://a,b"));
        let properties = read("TOKEN_RESOURCE:x,ENVIRONMENT:azure").unwrap();

        let properties = set(properties, "token_Resource").unwrap();

        assert_eq!(properties.get("TOKEN_RESOURCE").map(Secret::expose), Some("api://a,b"));
        assert_eq!(properties.iter().count(), 2);
        assert!(set(properties, "RESOURCE").is_none());
    }

    #[test]
    fn what_is_no_property_is_refused_without_being_quoted() {
        for text in ["hunter2", "AWS_SESSION_TOKEN:a,hunter2", "hunter2:b", ""] {
            let expected: String = read(text).unwrap_err().into();
            assert!(!expected.contains("hunter2"), "{expected}");
        }
    }
}
