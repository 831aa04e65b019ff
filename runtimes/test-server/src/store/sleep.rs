//! `$where` with `sleep`, the one JavaScript that tests of time-outs need: `sleep(100)`, `sleep(100) || true`, and the same as
//! a function that returns a constant.

use std::time::Duration;

use bson::RawBsonRef;

use super::failure::CommandFailure;

/// A condition that takes time for each document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sleep {
    pub(super) time: Duration,
    /// Whether the document matches after that.
    pub(super) matches: bool,
}

impl Sleep {
    /// Reads the code of a `$where`.
    pub(super) fn parse(code: RawBsonRef<'_>) -> Result<Self, CommandFailure> {
        let text = code.as_str().or_else(|| code.as_javascript());
        text.and_then(read).ok_or_else(|| {
            CommandFailure::not_supported("$where with other code than sleep(milliseconds) and a constant after it")
        })
    }
}

fn read(code: &str) -> Option<Sleep> {
    let code: String = code.chars().filter(|character| !character.is_whitespace()).collect();
    // Without its white space, `return true` has lost the space between its words.
    let code = match code.strip_prefix("function()") {
        Some(body) => body.strip_prefix('{')?.strip_suffix('}')?,
        None => &code,
    };
    let code = code.strip_prefix("return").unwrap_or(code);
    let (milliseconds, rest) = code.strip_prefix("sleep(")?.split_once(')')?;
    let time = Duration::from_millis(milliseconds.parse::<u32>().ok()?.into());
    let matches = match rest.trim_end_matches(';').trim_start_matches(';') {
        // What `sleep` returns is false.
        "" => false,
        "||true" | "||1" | "returntrue" | "true" | "return1" => true,
        "||false" | "||0" | "returnfalse" | "false" | "return0" => false,
        _ => return None,
    };
    Some(Sleep { time, matches })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_drivers_suites_are_known() {
        for (code, milliseconds, matches) in [
            ("sleep(2000) || true", 2000, true),
            ("sleep(5)", 5, false),
            ("function() { sleep(7); return true; }", 7, true),
            ("return sleep(1) || true;", 1, true),
            ("function () { sleep(3); return false }", 3, false),
        ] {
            assert_eq!(read(code), Some(Sleep { time: Duration::from_millis(milliseconds), matches }), "{code}");
        }
    }

    #[test]
    fn any_other_code_is_not() {
        for code in
            ["true", "this.x == 1", "sleep(x)", "sleep(-1)", "sleep(1", "sleep(1) && this.x", "function() { sleep(1)"]
        {
            assert_eq!(read(code), None, "{code}");
        }
    }
}
