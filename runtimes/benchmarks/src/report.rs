//! The output of a benchmark program: tables, and the bars with the measured figures.
//!
//! Where the environment variable `CMAP_BENCH_DATA` names a file, each table is appended to it as a line of JSON, for charts.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// The bars so far. Tables are printed as they come.
#[derive(Debug, Default)]
#[must_use = "it knows whether the program fails"]
pub struct Report {
    bars: Vec<Bar>,
}

/// A figure to reach: a ratio within one run, or a count, never a time.
#[derive(Debug)]
struct Bar {
    what: String,
    measured: String,
    is_met: bool,
}

/// A table in columns, the first one to the left.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

/// A table as programs read it. The first row is the head.
#[derive(Debug, Serialize, Deserialize)]
pub struct Printed {
    pub title: String,
    pub rows: Vec<Vec<String>>,
}

impl Report {
    pub fn bar(&mut self, what: impl Display, measured: impl Display, is_met: bool) {
        self.bars.push(Bar { what: what.to_string(), measured: measured.to_string(), is_met });
    }

    /// Prints the bars.
    pub fn close(self) -> ExitCode {
        println!("\nbars");
        for bar in &self.bars {
            let verdict = if bar.is_met { "met   " } else { "MISSED" };
            println!("  {verdict}  {}: {}", bar.what, bar.measured);
        }
        if self.bars.iter().all(|bar| bar.is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl Table {
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&cell| cell.into()).collect()] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn print(&self, title: &str) {
        self.append(title);
        println!("\n{title}");
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
                line += &format!(" {before}{cell}{after} ");
            }
            println!("{}", line.trim_end());
        }
    }

    fn append(&self, title: &str) {
        let Some(path) = std::env::var_os("CMAP_BENCH_DATA") else { return };
        let table = Printed { title: title.into(), rows: self.rows.clone() };
        let line = serde_json::to_string(&table).unwrap();
        writeln!(File::options().create(true).append(true).open(path).unwrap(), "{line}").unwrap();
    }
}
