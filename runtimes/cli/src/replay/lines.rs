//! Lines for a terminal. A trace has texts of others: labels, names of servers, errors. Their control characters are escaped, so that none
//! of them makes a line of its own, or is obeyed by the terminal. JSON and files pass as they are.

use std::fmt;
use std::io::{self, Write};

/// Writes each formatted line with its control characters escaped.
pub(super) struct Lines<'w>(pub(super) &'w mut dyn Write);

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        let line = line.to_string();
        let (text, end) = line.strip_suffix('\n').map_or((line.as_str(), ""), |text| (text, "\n"));
        let mut escaped = String::with_capacity(line.len());
        for character in text.chars() {
            if is_obeyed(character) {
                escaped.extend(character.escape_default());
            } else {
                escaped.push(character);
            }
        }
        self.0.write_all(escaped.as_bytes())?;
        self.0.write_all(end.as_bytes())
    }
}

/// Whether a terminal does something at the character, or turns what is around it: control characters, and those of writing direction.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_makes_no_line_and_sends_nothing_to_the_terminal() {
        let mut out = Vec::new();
        let label = "web\n  cause: nothing\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";

        writeln!(Lines(&mut out), "by {label}, é").unwrap();

        let line = "by web\\n  cause: nothing\\u{1b}]0;owned\\u{7}\\u{9b}2J\\u{202e}, é\n";
        assert_eq!(String::from_utf8(out).unwrap(), line);
    }
}
