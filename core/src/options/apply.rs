//! From a connection string to [`ClientOptions`]: which options are repeated, deprecated, empty or invalid, and which warning
//! each of these gives (URI-5, URI-6, URI-9).

use alloc::vec::Vec;

use super::advice::repeated_hosts;
use super::client::ClientOptions;
use super::conflicts;
use super::connection_string::Parts;
use super::credential::Credential;
use super::error::ConnectionStringError;
use super::keys::{self, KEYS, Key, Repeated};
use super::percent;
use super::secret::Shown;
use super::value::{Reading, boolean};
use super::warning::Warning;
use crate::address::ServerAddress;

impl ClientOptions {
    /// Reads a connection string.
    ///
    /// A host that is repeated counts once, with a [`Warning`]. Options that the specification says to ignore are ignored, with a [`Warning`] that belongs in the log at level
    /// WARN (URI-5, URI-6); [`ClientOptions::advice`] has more of them. A `mongodb+srv` string is checked as far as
    /// possible without DNS; it has no hosts, and TLS is on unless it says `tls=false` (DNS-9). A
    /// [`SeedList`](crate::topology::seed_list::SeedList) finds its hosts. The work is bounded by
    /// [`MAX_LENGTH`](super::MAX_LENGTH).
    pub fn parse(text: &str) -> Result<(Self, Vec<Warning>), ConnectionStringError> {
        let parts = Parts::read(text)?;
        let mut warnings = repeated_hosts(&parts.hosts);
        let hosts = ServerAddress::distinct(parts.hosts);
        let mut options = Self { hosts, database: parts.database, ..Self::default() };
        apply(&parts.options, parts.doubtful, &mut options, &mut warnings)?;
        options.pool.load_balanced = options.load_balanced == Some(true);
        options.credential = Credential::resolve(parts.user, &options.auth, options.database.as_deref())?;
        if options.auth.source.is_none() {
            options.auth.derived_source = options.credential.as_ref().map(|credential| credential.source.clone());
        }
        if parts.srv {
            options.srv.host = options.hosts.drain(..).next().and_then(ServerAddress::into_host);
            options.tls.enabled.get_or_insert(true);
        }
        conflicts::check(&options)?;
        options.pool.limits()?;
        Ok((options, warnings))
    }
}

/// Sets the fields that `pairs` name. `doubtful` names are never shown: they may be a part of a password.
pub(super) fn apply(
    pairs: &[(&str, &str)],
    doubtful: bool,
    options: &mut ClientOptions,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConnectionStringError> {
    warn_of_unknown(pairs, doubtful, warnings);
    for key in KEYS {
        let named = |is: fn(&Key, &str) -> bool| pairs.iter().filter(move |(name, _)| is(key, name));
        let mut values: Vec<&str> = named(Key::is_named).map(|(_, value)| *value).collect();
        if let (Some(former), Some(_)) = (key.deprecated, named(Key::was_named).next()) {
            let ignored = !values.is_empty();
            warnings.push(Warning::DeprecatedOption { option: former, replacement: key.name, ignored });
            if !ignored {
                values = named(Key::was_named).map(|(_, value)| *value).collect();
            }
        }
        if values.len() > 1 {
            check_repeated(key, &values, warnings)?;
        }
        for value in values {
            set(key, value, options, warnings);
        }
    }
    Ok(())
}

/// The text after a secret value may belong to it, if an `&` in it is not encoded.
fn warn_of_unknown(pairs: &[(&str, &str)], doubtful: bool, warnings: &mut Vec<Warning>) {
    let mut after_secret = false;
    for (name, _) in pairs {
        match keys::find(name) {
            Some(key) => after_secret = key.is_secret,
            None => warnings.push(Warning::UnknownOption {
                name: Shown::new(name, doubtful || after_secret),
                similar: keys::similar(name),
            }),
        }
    }
}

fn check_repeated(key: &Key, values: &[&str], warnings: &mut Vec<Warning>) -> Result<(), ConnectionStringError> {
    match key.repeated {
        Repeated::Listed => Ok(()),
        Repeated::Refused => Err(ConnectionStringError::Repeated { option: key.name }),
        Repeated::Warned => {
            warnings.push(Warning::RepeatedOption { option: key.name });
            Ok(())
        }
        Repeated::Agreeing => {
            let meanings = values.iter().map(|value| {
                let text = percent::decode(value).ok()?;
                boolean(&mut Reading { option: key.name, text: &text, warnings: &mut Vec::new() }).ok()
            });
            let meanings: Vec<Option<bool>> = meanings.collect();
            let agree = meanings.windows(2).all(|two| two.first() == two.last());
            if agree { Ok(()) } else { Err(ConnectionStringError::TlsDisagrees) }
        }
    }
}

fn set(key: &Key, value: &str, options: &mut ClientOptions, warnings: &mut Vec<Warning>) {
    let invalid = |expected| Warning::InvalidValue { option: key.name, expected };
    let text = match percent::decode(value) {
        Ok(text) => text,
        Err(error) => {
            warnings.push(invalid(alloc::format!("it so that it can be decoded: {error}").into()));
            return;
        }
    };
    if text.is_empty() && !key.may_be_empty {
        warnings.push(Warning::EmptyValue { option: key.name });
        return;
    }
    if let Err(expected) = (key.read)(options, &mut Reading { option: key.name, text: &text, warnings }) {
        warnings.push(invalid(expected));
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    /// The options of `text`, and its warnings.
    fn parse(text: &str) -> (ClientOptions, Vec<String>) {
        let (options, warnings) = ClientOptions::parse(&alloc::format!("mongodb://h/?{text}")).unwrap();
        (options, warnings.iter().map(Warning::to_string).collect())
    }

    #[test]
    fn an_unknown_option_is_ignored_with_a_hint() {
        let (options, warnings) = parse("maxPollSize=5&foo=bar");

        assert_eq!(options.set_by_user().count(), 0);
        assert_eq!(
            warnings,
            [
                "option \"maxPollSize\" does not exist and is ignored; write maxPoolSize if you meant that",
                "option \"foo\" does not exist and is ignored; remove it",
            ]
        );
    }

    #[test]
    fn an_invalid_value_is_ignored_and_not_shown_uri_16() {
        let (options, warnings) = parse("heartbeatFrequencyMS=499&tlsCAFile=a%zz&journal=");

        assert_eq!(options.set_by_user().count(), 0);
        assert_eq!(
            warnings,
            [
                "option heartbeatFrequencyMS has a value that is not valid and is ignored; \
                 write an integer from 500 to 2147483647",
                "option journal has no value and is ignored; write journal=value, or remove it",
                "option tlsCAFile has a value that is not valid and is ignored; write it so that it can be decoded: \
                 a % is not followed by two hexadecimal digits; write a % itself as %25",
            ]
        );
    }

    #[test]
    fn a_text_with_a_nul_is_ignored_and_named() {
        for option in ["appname", "readConcernLevel", "readPreferenceTags", "replicaSet", "w"] {
            let (options, warnings) = parse(&alloc::format!("{option}=a:b%00c"));

            assert_eq!(options.set_by_user().count(), 0, "{option}");
            let expected = " has a value that is not valid and is ignored; write a text without a NUL";
            assert_eq!(warnings, [alloc::format!("option {option}{expected}")]);
        }
    }

    #[test]
    fn a_nul_in_an_option_that_protects_is_an_error() {
        for option in ["proxyHost", "tlsCAFile", "tlsCertificateKeyFile"] {
            let (options, _) = parse(&alloc::format!("{option}=a%00b"));

            assert_eq!(options.check(), Err(ConnectionStringError::NulInOption { option }));
        }
    }

    #[test]
    fn of_a_repeated_option_the_last_valid_value_counts() {
        let (options, warnings) = parse("replicaSet=a&maxPoolSize=1&maxPoolSize=2&maxPoolSize=x&replicaSet=b");

        assert_eq!((options.replica_set.as_deref(), options.pool.max_pool_size), (Some("b"), Some(2)));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].starts_with("option maxPoolSize is there more than once"), "{warnings:?}");
    }

    #[test]
    fn a_former_name_counts_unless_the_new_one_is_there() {
        let (options, warnings) = parse("wtimeout=5");
        assert_eq!(options.write_concern.timeout, Some(core::time::Duration::from_millis(5)));
        assert_eq!(warnings, ["option wtimeout is deprecated; write wTimeoutMS"]);

        let (options, warnings) = parse("wtimeout=5&wTimeoutMS=x");
        assert_eq!((options.write_concern.timeout, warnings.len()), (None, 2));
        assert!(warnings[0].contains("deprecated and ignored"), "{warnings:?}");
    }

    #[test]
    fn tls_and_ssl_are_one_option_that_must_agree() {
        assert_eq!(parse("tls=true&ssl=true").1, [""; 0]);
        assert_eq!(parse("ssl=1&tls=true").0.tls.enabled, Some(true));
        for text in ["tls=true&tls=false", "tls=true&ssl=maybe"] {
            let error = ClientOptions::parse(&alloc::format!("mongodb://h/?{text}")).unwrap_err();
            assert_eq!(error, ConnectionStringError::TlsDisagrees);
        }
    }

    #[test]
    fn tag_sets_are_a_list_with_the_empty_set() {
        let (options, warnings) = parse("readPreference=nearest&readPreferenceTags=dc:ny&readPreferenceTags=");

        assert_eq!(options.read_preference.tag_sets().len(), 2);
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn a_secret_value_or_what_follows_it_is_never_shown() {
        for text in [
            "authMechanismProperties=hunter2",
            "tlsCertificateKeyFilePassword=hunter2%",
            "proxyHost=a&proxyUsername=b&proxyPassword=x&hunter2=y&hunter2=z",
            "appname=a@b&hunter2=c",
            "maxPoolSize=hunter2@host",
            "maxPoolSize=hunter2",
            "authMechanism=hunter2",
            "compressors=hunter2",
            "tls=hunter2",
            "readPreferenceTags=hunter2",
        ] {
            let (_, warnings) = parse(text);
            assert!(!warnings.is_empty() && !warnings.concat().contains("hunter2"), "{text}: {warnings:?}");
        }
    }

    #[test]
    fn the_pool_learns_of_a_load_balancer() {
        assert!(parse("loadBalanced=true").0.pool.load_balanced);
        assert!(!parse("loadBalanced=false").0.pool.load_balanced);
    }

    #[test]
    fn a_repeated_host_counts_once_with_a_warning() {
        let (options, warnings) = ClientOptions::parse("mongodb://a,b:1,A,a:27017,[::1],[::1]:27017").unwrap();

        assert_eq!(options.hosts, ["a", "b:1", "[::1]"].map(|host| host.parse().unwrap()));
        let texts: Vec<String> = warnings.iter().map(Warning::to_string).collect();
        assert_eq!(
            texts,
            [
                "host 3 is host 1 again and counts once; remove it",
                "host 4 is host 1 again and counts once; remove it",
                "host 6 is host 5 again and counts once; remove it",
            ]
        );
    }

    #[test]
    fn a_pool_that_contradicts_itself_is_an_error() {
        let error = ClientOptions::parse("mongodb://a/?minPoolSize=3&maxPoolSize=2").unwrap_err();

        assert!(error.to_string().starts_with("option minPoolSize is 3, but"), "{error}");
    }

    #[test]
    fn an_srv_host_is_no_server_and_has_to_be_looked_up_first() {
        let (options, warnings) = ClientOptions::parse("mongodb+srv://A.b.c/?srvMaxHosts=2").unwrap();

        assert_eq!((options.hosts.len(), options.srv.host.as_deref(), warnings.len()), (0, Some("a.b.c"), 0));
        assert_eq!(options.check(), Err(ConnectionStringError::NotLookedUp));
        let error = |text| ClientOptions::parse(text).unwrap_err();
        assert!(matches!(error("mongodb+srv://a.b.c:1"), ConnectionStringError::SrvHost(_)));
        assert!(matches!(error("mongodb+srv://a.b.c/?directConnection=true"), ConnectionStringError::Conflict { .. }));
    }

    #[test]
    fn an_srv_host_turns_tls_on_dns_9() {
        let has_tls = |text| ClientOptions::parse(text).unwrap().0.tls.is_enabled();

        assert!(has_tls("mongodb+srv://a.b.c"));
        assert!(!has_tls("mongodb+srv://a.b.c/?ssl=false"));
        assert!(!has_tls("mongodb://a.b.c"));
    }
}
