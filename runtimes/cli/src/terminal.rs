//! What a terminal shows and a file does not: tables that are drawn again and again, progress bars and colours.

use std::io::{self, IsTerminal};

/// Where the output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// To a file or to a program.
    None,
    /// To a terminal without colours.
    Plain,
    /// To a terminal.
    Coloured,
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const DEFAULT: &str = "\x1b[39m";

impl Terminal {
    /// Where standard output goes. `$NO_COLOR` asks for no colours, and a terminal called `dumb` counts as none.
    pub(crate) fn of_stdout() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb") {
            false => Self::None,
            true if is_set("NO_COLOR") => Self::Plain,
            true => Self::Coloured,
        }
    }

    /// A verdict: green if it is good, else red, where there are colours.
    pub(crate) fn verdict(self, is_good: bool, text: &str) -> String {
        match self {
            Self::None | Self::Plain => text.to_owned(),
            Self::Coloured => format!("{}{text}{DEFAULT}", if is_good { GREEN } else { RED }),
        }
    }
}

/// A progress bar of 20 characters.
pub(crate) fn bar(percent: usize) -> String {
    const CELLS: usize = 20;
    let full = CELLS * percent.min(100) / 100;
    format!("{}{}", "#".repeat(full), ".".repeat(CELLS - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_a_colour_where_a_terminal_shows_it() {
        assert_eq!(Terminal::Coloured.verdict(true, "fine"), "\x1b[32mfine\x1b[39m");
        assert_eq!(Terminal::Coloured.verdict(false, "bad"), "\x1b[31mbad\x1b[39m");
        assert_eq!([Terminal::None, Terminal::Plain].map(|it| it.verdict(false, "bad")), ["bad"; 2]);
    }

    #[test]
    fn a_bar_is_full_at_the_end() {
        assert_eq!(bar(0), "....................");
        assert_eq!(bar(25), "#####...............");
        assert_eq!(bar(140), "####################");
    }
}
