//! Where the demo is printed: lines that stay, and on a terminal below them a table of the runtimes.

use std::io::{self, Write};

use crate::live_table::LiveTable;
use crate::terminal::{Terminal, bar};

/// The output. Elsewhere than on a terminal it shows lines alone.
pub(super) struct Screen<'a> {
    live: LiveTable<'a>,
    rows: Vec<Row>,
}

/// The row of one runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// In per cent.
    pub(super) progress: usize,
    pub(super) pings_per_second: f64,
    pub(super) in_use: u32,
    pub(super) waiting: u32,
    pub(super) errors: u64,
    /// What is going on.
    pub(super) scene: &'static str,
}

const HEADER: &str = "             progress              pings/s  in use  waiting  errors";

impl<'a> Screen<'a> {
    pub(super) fn new(out: &'a mut dyn Write, terminal: Terminal, names: &[&'static str]) -> Self {
        let rows: Vec<_> = names.iter().map(|&name| Row { name, ..Row::default() }).collect();
        Self { live: LiveTable::new(out, terminal, table(&rows)), rows }
    }

    /// Prints lines that stay.
    pub(super) fn say(&mut self, lines: &str) -> io::Result<()> {
        self.live.say(lines)
    }

    /// Changes a row of the table.
    pub(super) fn show(&mut self, number: usize, change: impl FnOnce(&mut Row)) -> io::Result<()> {
        if let Some(row) = self.rows.get_mut(number) {
            change(row);
        }
        // At the end there is another table.
        self.live.show(if self.progress() < 100 { table(&self.rows) } else { Vec::new() })
    }

    /// How much of the whole demo is over, in per cent.
    pub(super) fn progress(&self) -> usize {
        self.rows.iter().map(|row| row.progress).sum::<usize>() / self.rows.len().max(1)
    }

    /// Takes the table away.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.live.clear()
    }
}

fn table(rows: &[Row]) -> Vec<String> {
    std::iter::once(HEADER.into()).chain(rows.iter().map(Row::text)).collect()
}

impl Row {
    fn text(&self) -> String {
        let Self { name, progress, pings_per_second, in_use, waiting, errors, scene } = self;
        let bar = bar(*progress);
        format!("{name:>9}  {bar}  {pings_per_second:9.0}  {in_use:6}  {waiting:7}  {errors:6}  {scene}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["one", "two"];

    fn printed(terminal: Terminal) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, terminal, &NAMES);
        screen.show(0, |row| row.progress = 50).unwrap();
        screen.say("first").unwrap();
        screen.clear().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn elsewhere_than_on_a_terminal_there_are_lines_alone() {
        assert_eq!(printed(Terminal::None), "first\n");
    }

    #[test]
    fn a_line_takes_the_place_of_the_table_which_moves_down() {
        let text = printed(Terminal::Plain);

        let parts: Vec<_> = text.split("\x1b[3A\x1b[J").collect();
        assert_eq!(parts.len(), 3, "{text:?}");
        assert!(parts[0].contains("##########.........."), "{text:?}");
        assert_eq!(parts[1], format!("first\n{}", parts[0]));
    }

    #[test]
    fn a_line_of_the_table_fits_a_terminal_of_eighty_columns() {
        let row = Row { name: "async-std", scene: "stopped", pings_per_second: 1e8, ..Row::default() };

        assert!(row.text().len() < 80, "{}", row.text());
    }
}
