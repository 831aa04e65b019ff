//! A table at the end of the output, which is drawn again and again while lines above it stay. Elsewhere than on a terminal
//! there are the lines alone.

use std::io::{self, Write};

use crate::terminal::Terminal;

/// An output with such a table.
pub(crate) struct LiveTable<'a> {
    out: &'a mut dyn Write,
    terminal: Terminal,
    table: Vec<String>,
    /// Lines of the table that are on the terminal.
    drawn: usize,
}

impl<'a> LiveTable<'a> {
    /// An output whose table is not drawn before something is said or shown.
    pub(crate) fn new(out: &'a mut dyn Write, terminal: Terminal, table: Vec<String>) -> Self {
        Self { out, terminal, table, drawn: 0 }
    }

    /// Where it goes.
    pub(crate) fn terminal(&self) -> Terminal {
        self.terminal
    }

    /// Prints lines that stay.
    pub(crate) fn say(&mut self, lines: &str) -> io::Result<()> {
        self.clear()?;
        writeln!(self.out, "{lines}")?;
        self.draw()
    }

    /// Changes the table; one without lines is gone.
    pub(crate) fn show(&mut self, table: Vec<String>) -> io::Result<()> {
        self.table = table;
        self.clear()?;
        self.draw()
    }

    /// Takes the table away.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        match core::mem::take(&mut self.drawn) {
            0 => Ok(()),
            // The cursor goes up to the table's first line, and everything below it is erased.
            lines => write!(self.out, "\x1b[{lines}A\x1b[J"),
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        if self.terminal != Terminal::None {
            self.table.iter().try_for_each(|line| writeln!(self.out, "{line}"))?;
            self.drawn = self.table.len();
        }
        self.out.flush()
    }
}

/// What is written takes the table away.
impl Write for LiveTable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.clear()?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
