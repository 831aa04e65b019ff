//! Warnings about a connection string that is odd but usable, and about options that put something at risk: each
//! belongs in the log at level WARN (URI-5, URI-6).

use alloc::borrow::Cow;
use core::fmt;

use super::secret::Shown;

/// A part of a connection string that was ignored, has no effect, or will not be understood forever, or an option that gives up a
/// protection ([`ClientOptions::advice`](super::ClientOptions::advice)).
///
/// It displays as one sentence that names the option and what to write instead. It shows no value but a word of the option's own
/// (URI-16): a password that was put into the wrong place would be shown otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// An option with this name does not exist; it is ignored (URI-5).
    UnknownOption {
        /// The name that was written.
        name: Shown,
        /// An option with a similar name.
        similar: Option<&'static str>,
    },
    /// The option cannot have this value, which is ignored (URI-6).
    InvalidValue {
        /// The option's name as the specification spells it.
        option: &'static str,
        /// What the value must be.
        expected: Cow<'static, str>,
    },
    /// The option has an empty value, which is ignored (URI-6).
    EmptyValue {
        /// The option's name as the specification spells it.
        option: &'static str,
    },
    /// One entry of a list is unknown and left out; the others count (COMP-2).
    UnknownEntry {
        /// The option's name as the specification spells it.
        option: &'static str,
        /// Which one, counted from 1.
        position: usize,
        /// What an entry must be.
        expected: &'static str,
    },
    /// The value is understood as true or false, but it is deprecated (URI-7).
    DeprecatedBoolean {
        /// The option's name as the specification spells it.
        option: &'static str,
        /// The deprecated word.
        word: &'static str,
        /// Its meaning.
        meaning: bool,
    },
    /// The option has a new name (URI-9).
    DeprecatedOption {
        /// The old name.
        option: &'static str,
        /// The new name.
        replacement: &'static str,
        /// Whether the value was ignored because the new name is present, too.
        ignored: bool,
    },
    /// The option is repeated; its last valid value counts (URI-9).
    RepeatedOption {
        /// The option's name as the specification spells it.
        option: &'static str,
    },
    /// A host is repeated; it counts once.
    RepeatedHost {
        /// Which one, counted from 1.
        position: usize,
        /// Where the host stands first, counted from 1.
        first: usize,
    },
    /// The option is on and relaxes a check of the server's certificate (TLS-4).
    RelaxedTls {
        /// The option's name as the specification spells it.
        option: &'static str,
        /// The risk.
        risk: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// The option is valid, and changes nothing here.
    NoEffect {
        /// The option's name as the specification spells it.
        option: &'static str,
        /// Why, and what to do instead.
        reason: &'static str,
    },
    /// PLAIN sends the password itself, and there is no TLS around it (AUTH-20).
    PasswordInClear,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOption { name, similar: None } => {
                write!(f, "option {name} does not exist and is ignored; remove it")
            }
            Self::UnknownOption { name, similar: Some(similar) } => {
                write!(f, "option {name} does not exist and is ignored; write {similar} if you meant that")
            }
            Self::InvalidValue { option, expected } => {
                write!(f, "option {option} has a value that is not valid and is ignored; write {expected}")
            }
            Self::EmptyValue { option } => {
                write!(f, "option {option} has no value and is ignored; write {option}=value, or remove it")
            }
            Self::UnknownEntry { option, position, expected } => {
                write!(f, "entry {position} of option {option} is unknown and left out; write {expected}")
            }
            Self::DeprecatedBoolean { option, word, meaning } => {
                write!(f, "option {option} has the deprecated value {word}; write {option}={meaning}")
            }
            Self::DeprecatedOption { option, replacement, ignored: false } => {
                write!(f, "option {option} is deprecated; write {replacement}")
            }
            Self::DeprecatedOption { option, replacement, ignored: true } => {
                write!(f, "option {option} is deprecated and ignored, because {replacement} is there too; remove it")
            }
            Self::RepeatedOption { option } => {
                write!(f, "option {option} is there more than once, its last valid value counts; write it once")
            }
            Self::RepeatedHost { position, first } => {
                write!(f, "host {position} is host {first} again and counts once; remove it")
            }
            Self::RelaxedTls { option, risk, remedy } => {
                write!(f, "option {option} is on, so {risk}; {remedy}")
            }
            Self::NoEffect { option, reason } => write!(f, "option {option} has no effect: {reason}"),
            Self::PasswordInClear => f.write_str(
                "authMechanism=PLAIN without TLS shows the password to everybody on the way to the server; write \
                 tls=true, or use SCRAM-SHA-256",
            ),
        }
    }
}
