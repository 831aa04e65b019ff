//! Options that stand in a TXT record of DNS, next to the SRV records that name the hosts.
//!
//! They are defaults: what the connection string or the code says counts more (DNS-9). Their owner is the one of the domain, not
//! of the connection string, so only three options are allowed (DNS-8).

use alloc::string::String;
use alloc::vec::Vec;

use super::apply;
use super::client::ClientOptions;
use super::connection_string::pairs;
use super::credential::Credential;
use super::error::ConnectionStringError;
use super::keys;
use super::secret::Shown;
use super::warning::Warning;

/// The options that a TXT record may set.
const ALLOWED: [&str; 3] = ["authSource", "loadBalanced", "replicaSet"];

impl ClientOptions {
    /// Sets the options in `text`, the content of a TXT record, where they are not set already. A value that is not valid is
    /// ignored with a warning, as in a connection string.
    pub(crate) fn apply_txt(&mut self, text: &str) -> Result<Vec<Warning>, ConnectionStringError> {
        let pairs = pairs(text)?;
        let is_allowed = |name: &str| keys::find(name).is_some_and(|key| ALLOWED.contains(&key.name));
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !is_allowed(name)) {
            return Err(ConnectionStringError::TxtOption { name: Shown::new(name, false) });
        }
        let mut warnings = Vec::new();
        let mut defaults = Self::default();
        apply::apply(&pairs, false, &mut defaults, &mut warnings)?;
        self.replica_set = self.replica_set.take().or(defaults.replica_set);
        // Code may have set that of the pool alone.
        if !self.pool.load_balanced {
            self.load_balanced = self.load_balanced.or(defaults.load_balanced);
        }
        self.pool.load_balanced |= self.load_balanced == Some(true);
        if self.auth.source.is_none()
            && let Some(source) = defaults.auth.source
        {
            self.apply_default_source(&source)?;
            self.auth.source = Some(source);
        }
        Ok(warnings)
    }

    /// The user of the connection string is known to the database `source`. A credential that was set in code stays, and so
    /// does one whose mechanism has its users elsewhere: the owner of the domain does not know which one is used.
    fn apply_default_source(&mut self, source: &str) -> Result<(), ConnectionStringError> {
        Credential::check_source(source)?;
        if let Some(credential) = &mut self.credential
            && credential.is_of_connection_string
            && self.auth.derived_source.as_ref() == Some(&credential.source)
            && !credential.is_external()
        {
            credential.source = String::from(source);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::options::CredentialError;

    fn parse(text: &str) -> ClientOptions {
        ClientOptions::parse(text).unwrap().0
    }

    fn source(options: &ClientOptions) -> Option<&str> {
        options.credential.as_ref().map(|credential| credential.source.as_str())
    }

    #[test]
    fn options_of_a_record_are_defaults_dns_9() {
        let mut options = parse("mongodb+srv://u:p@a.b.c/?replicaSet=mine");

        let warnings = options.apply_txt("authSource=theirs&replicaSet=theirs&loadBalanced=false").unwrap();

        assert_eq!(warnings, []);
        assert_eq!((options.replica_set.as_deref(), options.load_balanced), (Some("mine"), Some(false)));
        assert_eq!(source(&options), Some("theirs"));
    }

    #[test]
    fn the_source_of_the_connection_string_or_of_the_code_stays_dns_9() {
        let mut named = parse("mongodb+srv://u:p@a.b.c/?authSource=mine");
        named.apply_txt("authSource=theirs").unwrap();
        assert_eq!(source(&named), Some("mine"));

        let mut in_code = parse("mongodb+srv://a.b.c");
        in_code.credential = Some(Credential::new("u", "p".into(), "admin"));
        in_code.apply_txt("authSource=theirs").unwrap();
        assert_eq!(source(&in_code), Some("admin"));

        let mut replaced = parse("mongodb+srv://u:p@a.b.c");
        replaced.credential = Some(Credential::new("u", "p".into(), "admin"));
        replaced.apply_txt("authSource=theirs").unwrap();
        assert_eq!(source(&replaced), Some("admin"), "the source of the connection string's user was the same");
    }

    #[test]
    fn a_password_that_code_fills_in_leaves_the_source_to_the_record_dns_9() {
        let mut options = parse("mongodb+srv://u@a.b.c");
        options.credential.as_mut().unwrap().password = Some("p".into());

        options.apply_txt("authSource=theirs").unwrap();

        assert_eq!(source(&options), Some("theirs"));
    }

    #[test]
    fn a_load_balancer_that_the_code_has_named_stays_dns_9() {
        for text in ["replicaSet=rs", "loadBalanced=false"] {
            let mut options = parse("mongodb+srv://a.b.c");
            options.pool.load_balanced = true;

            options.apply_txt(text).unwrap();

            assert!(options.is_load_balanced() && options.pool.load_balanced, "{text}");
            assert_eq!(options.load_balanced, None, "{text}");
        }
    }

    #[test]
    fn a_source_counts_more_than_the_database_after_the_host() {
        let mut options = parse("mongodb+srv://u:p@a.b.c/db");

        options.apply_txt("authSource=theirs").unwrap();

        assert_eq!(source(&options), Some("theirs"));
    }

    #[test]
    fn other_options_are_refused_by_name_dns_8() {
        for text in ["ssl=false", "replicaSet=r&tls=true", "foo=1"] {
            let error = parse("mongodb+srv://a.b.c").apply_txt(text).unwrap_err();
            assert!(matches!(error, ConnectionStringError::TxtOption { .. }), "{text}: {error}");
        }
        let error = parse("mongodb+srv://a.b.c").apply_txt("replicaSet").unwrap_err().to_string();
        assert!(error.contains("option 1, replicaSet, has no ="), "{error}");
    }

    #[test]
    fn a_bad_value_is_ignored_with_a_warning_x_54() {
        let mut options = parse("mongodb+srv://a.b.c");

        let warnings = options.apply_txt("loadBalanced=maybe").unwrap();

        assert_eq!((options.load_balanced, warnings.len()), (None, 1));
    }

    #[test]
    fn a_mechanism_that_has_its_users_elsewhere_ignores_the_source_dns_9() {
        for mechanism in ["MONGODB-X509", "MONGODB-AWS", "MONGODB-OIDC", "GSSAPI"] {
            let mut options = parse(&alloc::format!("mongodb+srv://u@a.b.c/?authMechanism={mechanism}"));

            let warnings = options.apply_txt("authSource=admin&replicaSet=rs").unwrap();

            assert_eq!((warnings, source(&options)), ([].into(), Some("$external")), "{mechanism}");
        }
        let mut plain = parse("mongodb+srv://u:p@a.b.c/?authMechanism=PLAIN");
        plain.apply_txt("authSource=db").unwrap();
        assert_eq!(source(&plain), Some("db"), "a server may proxy PLAIN for any database");
    }

    #[test]
    fn a_source_that_no_database_has_is_an_error_auth_4() {
        for (uri, text, expected) in [
            ("mongodb+srv://u:p@a.b.c", "authSource=", CredentialError::EmptySource),
            ("mongodb+srv://a.b.c", "authSource=", CredentialError::EmptySource),
            ("mongodb+srv://u@a.b.c/?authMechanism=MONGODB-X509", "authSource=", CredentialError::EmptySource),
            ("mongodb+srv://u:p@a.b.c", "authSource=a%00b", CredentialError::NulInSource),
        ] {
            assert_eq!(parse(uri).apply_txt(text), Err(expected.into()), "{uri}");
        }
    }
}
