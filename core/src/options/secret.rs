//! Secret values: wiped from memory when dropped, and absent from everything that is printed.
//!
//! [`Secret`] holds a password. [`Shown`] is the part of a connection string that errors and warnings quote: a short
//! text, or nothing if the text may be secret.

use alloc::string::String;
use core::fmt;

use zeroize::Zeroizing;

/// A password or another secret text.
///
/// Its memory is overwritten when it is dropped. Its `Debug` form says only that there is one, and it is neither
/// displayed nor serialised, so that no log, event or trace can hold it.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text itself. A caller that copies it must wipe the copy.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(Zeroizing::new(String::from(text)))
    }
}

impl From<Zeroizing<String>> for Secret {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A part of a connection string as errors and warnings show it.
///
/// Text is quoted, its control characters are escaped, and it is cut after 64 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The text, cut.
    Text(String),
    /// Nothing, because the text is secret or may hold a part of the user name and password.
    Withheld,
}

/// The characters of a text that are shown.
const SHOWN_CHARACTERS: usize = 64;

impl Shown {
    /// `text`, or nothing of it if it is `secret`.
    pub(crate) fn new(text: &str, secret: bool) -> Self {
        if secret {
            return Self::Withheld;
        }
        let mut shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self::Text(shown)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Withheld => f.write_str("(not shown: it may be secret)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn debug_tells_nothing_of_a_secret() {
        let shown = format!("{:?}", [Secret::from("hunter2"), Secret::from(String::new())]);

        assert_eq!(shown, "[Secret(..), Secret(..)]");
        assert_eq!(Secret::from("hunter2").expose(), "hunter2");
    }

    #[test]
    fn shown_text_is_quoted_escaped_and_cut() {
        assert_eq!(Shown::new("a\nb", false).to_string(), r#""a\nb""#);
        assert_eq!(Shown::new(&"é".repeat(65), false).to_string(), format!("\"{}…\"", "é".repeat(64)));
        assert_eq!(Shown::new("hunter2", true).to_string(), "(not shown: it may be secret)");
    }
}
