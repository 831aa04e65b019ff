//! A name, in which stars stand for any text.

use std::fmt;

/// A pattern of names: `orders`, `shop_*`, `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// The pattern in lower case.
    lower: String,
}

impl Pattern {
    /// The pattern that this text is.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { lower: text.to_ascii_lowercase(), text }
    }

    /// Whether the name fits. The time is at most the product of both lengths.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.text, name)
    }

    /// Whether `name` matches, where the case of ASCII letters does not matter.
    pub fn matches_in_any_case(&self, name: &str) -> bool {
        matches(&self.lower, &name.to_ascii_lowercase())
    }

    /// Whether it is this very name, without a star.
    pub fn names(&self, name: &str) -> bool {
        self.text == name
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        // The leftmost place leaves the most for those that follow.
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, fitting, others) in [
            ("orders", &["orders"][..], &["order", "orders2", ""][..]),
            ("*", &["", "anything"], &[]),
            ("shop_*", &["shop_", "shop_a"], &["shop", "a_shop_"]),
            ("*_log", &["_log", "a_log"], &["log", "a_logs"]),
            ("a*b*c", &["abc", "aXbYc", "abbcc"], &["ac", "abcd", "cba"]),
            ("a*a", &["aa", "aba"], &["a"]),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(fitting.iter().all(|name| pattern.matches(name)), "{pattern} {fitting:?}");
            assert!(!others.iter().any(|name| pattern.matches(name)), "{pattern} {others:?}");
        }
    }
}
