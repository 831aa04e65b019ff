//! Names of clients' making, as a log and a reply can show them.
//!
//! A collection's name may have megabytes and line breaks, because no server has looked at it yet. What is longer than any name that a
//! server takes is cut, and control characters are escaped: nobody writes lines of their own into the hub's log.

use std::fmt;

/// How many bytes a name has at most.
pub(super) const LONGEST: usize = 255;

/// The front of a name, of at most [`LONGEST`] bytes.
pub(super) fn cut(name: &str) -> &str {
    let mut end = LONGEST.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

/// The front of a name, with its control characters escaped.
pub(crate) fn shown(name: &str) -> impl fmt::Display {
    cut(name).escape_debug()
}

/// Whether a name can be shown as it is.
pub(super) fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        assert_eq!(cut(&"é".repeat(200)), "é".repeat(127));
        assert_eq!(cut("orders"), "orders");
    }

    #[test]
    fn a_name_breaks_no_line() {
        assert_eq!(shown("shop\n2026-11-25 INFO \u{1b}[2J").to_string(), "shop\\n2026-11-25 INFO \\u{1b}[2J");
    }
}
