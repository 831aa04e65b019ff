//! The texts of errors: bounded, and harmless to a log or a terminal.
//!
//! A server writes much of an error's text, up to the greatest length of a message, and errors end up in logs and on
//! terminals. There a line feed forges a line of the log, and an escape sequence steers the terminal. Every text of a
//! server passes through here when it becomes a part of an error, so code that displays an error need not care.

use alloc::borrow::Cow;
use alloc::string::String;
use core::error::Error;
use core::fmt::{self, Write as _};

/// The greatest length of a text in an error, in bytes.
const MAX_LENGTH: usize = 8 * 1024;

/// Marks the end of a text that was cut.
const ELLIPSIS: &str = "...";

/// An error with its causes, in one line, as people read it. No error of these crates repeats in its `source` what its own
/// sentence says. Causes may be of other crates, with texts of a peer in them: what a log or a terminal would obey is escaped.
#[derive(Clone, Copy)]
pub struct ErrorChain<'a>(pub &'a dyn Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Escaping(f);
        write!(line, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(line, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Escapes what a log or a terminal would obey.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_obeyed) {
            match part.chars().next_back().filter(|&last| is_obeyed(last)) {
                Some(last) => {
                    self.0.write_str(part.strip_suffix(last).unwrap_or(part))?;
                    write!(self.0, "{}", last.escape_default())?;
                }
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Gives errors a `Debug` form that people can read: `main` prints that one when it returns an error.
macro_rules! readable_debug {
    ($($error:ty),+ $(,)?) => {$(
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&$crate::ErrorChain(self), f)
            }
        }
    )+};
}

pub(crate) use readable_debug;

/// Escapes the control characters of `text` as Rust does (`\n`, `\u{1b}`), and cuts it after a whole character if it
/// would be longer than 8 KiB. A result stays the same when it passes through again.
pub(crate) fn presentable(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_LENGTH && !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    // The length to cut it to, if it is too long.
    let mut kept = 0;
    for character in text.chars() {
        if is_obeyed(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
        if out.len() > MAX_LENGTH {
            out.truncate(kept);
            out.push_str(ELLIPSIS);
            break;
        }
        if out.len() <= MAX_LENGTH - ELLIPSIS.len() {
            kept = out.len();
        }
    }
    Cow::Owned(out)
}

/// Makes an owned text presentable.
pub(crate) fn into_presentable(text: String) -> String {
    match presentable(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(presentable) => presentable,
    }
}

/// Whether a terminal or a reader of logs acts on this character instead of showing it: control characters, line
/// separators, and marks of the writing direction, which can make a text look like another one.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_shown_stays_as_it_is() {
        for text in ["", "not primary", "a \"quoted\" \\ text", "schön und gut, 漢字, 👍"] {
            assert!(matches!(presentable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn what_a_terminal_or_a_log_would_obey_is_escaped() {
        for (text, expected) in [
            ("one\ntwo\r\n", r"one\ntwo\r\n"),
            ("\u{1b}[2Jgone", r"\u{1b}[2Jgone"),
            ("a\u{0}b\u{7}c\u{7f}d\u{9b}e\t", r"a\u{0}b\u{7}c\u{7f}d\u{9b}e\t"),
            ("\u{2028}\u{2029}\u{85}", r"\u{2028}\u{2029}\u{85}"),
            ("\u{202e}txt.exe\u{2066}\u{200f}", r"\u{202e}txt.exe\u{2066}\u{200f}"),
        ] {
            assert_eq!(presentable(text), expected);
        }
    }

    #[test]
    fn a_chain_of_errors_is_one_line_whatever_its_causes_say() {
        let error = core::fmt::Error;
        assert_eq!(alloc::format!("{}", ErrorChain(&error)), alloc::format!("{error}"));

        let forged: alloc::boxed::Box<dyn Error + Send + Sync> = "for a\nWARN all is well\u{1b}[2J".into();
        assert_eq!(alloc::format!("{}", ErrorChain(&*forged)), r"for a\nWARN all is well\u{1b}[2J");
    }

    #[test]
    fn what_is_longer_than_8_kib_is_cut_after_a_whole_character() {
        let cut = |text: &str| into_presentable(text.into());

        assert_eq!(cut(&"a".repeat(8192)), "a".repeat(8192));
        assert_eq!(cut(&"a".repeat(8193)), "a".repeat(8189) + "...");
        assert_eq!(cut(&"€".repeat(2731)), "€".repeat(2729) + "...");
        assert_eq!(cut(&"\u{1b}".repeat(8192)), "\\u{1b}".repeat(1364) + "...");
        assert_eq!(cut(&("a".repeat(8191) + "\n")), "a".repeat(8189) + "...");
        assert_eq!(cut(&("a".repeat(8190) + "\n")), "a".repeat(8190) + "\\n");
    }

    #[test]
    fn a_presentable_text_stays_the_same() {
        for text in ["\u{1b}[31m\n".repeat(2000), "a".repeat(9000), "€".repeat(3000)] {
            let once = into_presentable(text);
            assert!(matches!(presentable(&once), Cow::Borrowed(_)), "{once}");
        }
    }
}
