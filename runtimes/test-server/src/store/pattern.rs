//! The regular expressions that a test server needs: a text, anywhere, at the beginning or at the end.
//!
//! Also `.*`, escaped characters, the option `i`, and `^(?!text)`, by which harnesses skip system collections.
//! Everything else is an error, because a regular expression that is only half understood matches the wrong documents.
//! understood half-way matches the wrong documents.

use super::failure::CommandFailure;
use super::work::Work;

/// A regular expression without choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Texts with anything between them; at least one.
    texts: Vec<String>,
    from_beginning: bool,
    to_end: bool,
    ignores_case: bool,
    /// The text that must not match.
    unless: Option<Box<Pattern>>,
}

impl Pattern {
    /// Reads a regular expression.
    pub(super) fn parse(pattern: &str, options: &str) -> Result<Self, CommandFailure> {
        let unsupported = || CommandFailure::not_supported(&format!("the regular expression /{pattern}/{options}"));
        // `u` is always on; `s` lets a dot match the end of a line, as it does here.
        if options.chars().any(|option| !matches!(option, 'i' | 's' | 'u')) {
            return Err(unsupported());
        }
        if let Some((without, rest)) = pattern.strip_prefix("^(?!").and_then(|rest| rest.split_once(')')) {
            let unless = Some(Box::new(Self::parse(&format!("^{without}"), options)?));
            return match rest.starts_with("(?!") {
                true => Err(unsupported()),
                false => Ok(Self { unless, ..Self::parse(&format!("^{rest}"), options)? }),
            };
        }
        let ignores_case = options.contains('i');
        let from_beginning = pattern.starts_with('^');
        let mut rest = pattern.strip_prefix('^').unwrap_or(pattern).chars();
        let (mut texts, mut text, mut to_end) = (Vec::new(), String::new(), false);
        while let Some(character) = rest.next() {
            match character {
                '$' if rest.as_str().is_empty() => to_end = true,
                '.' if rest.as_str().starts_with('*') => {
                    rest.next();
                    texts.push(std::mem::take(&mut text));
                }
                '\\' => text.push(rest.next().filter(|next| !next.is_alphanumeric()).ok_or_else(unsupported)?),
                '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => {
                    return Err(unsupported());
                }
                character => text.push(character),
            }
        }
        texts.push(text);
        if ignores_case {
            texts = texts.iter().map(|text| text.to_lowercase()).collect();
        }
        Ok(Self { texts, from_beginning, to_end, ignores_case, unless: None })
    }

    /// Whether `text` matches.
    pub(super) fn matches(&self, text: &str, work: &Work) -> bool {
        // The search for a long text may take several comparisons for each byte.
        let bytes_per_step = if self.texts.iter().any(|text| text.len() > 32) { 3 } else { 16 };
        work.step((self.texts.len() + text.len() / bytes_per_step) as u64);
        if self.unless.as_ref().is_some_and(|unless| unless.matches(text, work)) {
            return false;
        }
        if self.ignores_case { self.is_in(&text.to_lowercase()) } else { self.is_in(text) }
    }

    fn is_in(&self, text: &str) -> bool {
        let Some((last, others)) = self.texts.split_last() else { return true };
        let mut rest = text;
        for (index, part) in others.iter().enumerate() {
            let found = if index == 0 && self.from_beginning {
                rest.starts_with(&**part).then_some(0)
            } else {
                rest.find(&**part)
            };
            let Some(at) = found else { return false };
            rest = &rest[at + part.len()..];
        }
        match (others.is_empty() && self.from_beginning, self.to_end) {
            (true, true) => rest == last,
            (true, false) => rest.starts_with(&**last),
            (false, true) => rest.ends_with(&**last),
            (false, false) => rest.contains(&**last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::StoreLimits;
    use super::*;

    #[test]
    fn texts_are_found_where_the_pattern_says() {
        for (pattern, options, text, expected) in [
            ("b", "", "abc", true),
            ("^b", "", "abc", false),
            ("^ab", "", "abc", true),
            ("bc$", "", "abc", true),
            ("^abc$", "", "abcd", false),
            ("^a.*d$", "", "abcd", true),
            ("^a.*b.*e", "", "abcd", false),
            ("^a.*a$", "", "a", false),
            (r"a\.b", "", "a.b", true),
            ("ABC", "i", "xabcx", true),
            ("", "", "", true),
            (r"^(?!system\.)", "", "system.users", false),
            (r"^(?!system\.)", "", "users", true),
        ] {
            let work = Work::new(&StoreLimits::default());
            assert_eq!(
                Pattern::parse(pattern, options).unwrap().matches(text, &work),
                expected,
                "/{pattern}/ in {text}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (pattern, options) in [
            ("a|b", ""),
            ("[a]", ""),
            ("a+", ""),
            (r"\d", ""),
            ("a", "m"),
            ("(?!x)", ""),
            ("^(?!(a))", ""),
            ("^(?!a)(?!b)", ""),
            ("\\", ""),
        ] {
            assert!(Pattern::parse(pattern, options).is_err(), "/{pattern}/{options}");
        }
    }
}
