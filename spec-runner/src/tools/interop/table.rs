//! The table of results: a row for each check, a column for each program.

use std::io::{self, Write};

use super::checks::Check;
use super::column::Column;
use super::program::Verdict;

/// Results, as they come.
#[derive(Debug)]
pub struct Table {
    checks: Vec<&'static Check>,
    columns: Vec<(Column, Vec<(&'static Check, Verdict)>)>,
}

impl Table {
    /// A table with these rows.
    pub fn new(checks: &[&'static Check]) -> Self {
        Self { checks: checks.to_vec(), columns: Vec::new() }
    }

    /// Begins a column; the following results belong to it.
    pub fn begin(&mut self, column: Column) {
        self.columns.push((column, Vec::new()));
    }

    /// Adds a result.
    pub fn note(&mut self, check: &'static Check, verdict: Verdict) {
        if let Some((_, results)) = self.columns.last_mut() {
            results.push((check, verdict));
        }
    }

    /// How many checks failed.
    pub fn failed(&self) -> usize {
        self.columns.iter().map(|(_, results)| failed_in(results)).sum()
    }

    /// How many failed in the latest column.
    pub fn failed_in_last(&self) -> usize {
        self.columns.last().map_or(0, |(_, results)| failed_in(results))
    }

    /// Prints the table and a closing line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let results = self.columns.iter().flat_map(|(_, results)| results);
        let made: Vec<_> = self.checks.iter().filter(|&&check| results.clone().any(|(of, _)| *of == check)).collect();
        let first = made.iter().map(|check| check.name.len()).max().unwrap_or_default().max("check".len());
        let row = |name: &str, cells: &dyn Fn(&(Column, Vec<_>)) -> &'static str| {
            let cell =
                |column: &_| format!("  {:width$}", cells(column), width = column.0.name().len().max("pass".len()));
            format!("{name:first$}{}", self.columns.iter().map(cell).collect::<String>())
        };
        writeln!(out, "{}", row("check", &|(column, _)| column.name()).trim_end())?;
        for check in made {
            let cell = |(_, results): &(_, Vec<(&Check, _)>)| word(results.iter().find(|(of, _)| of == check));
            writeln!(out, "{}", row(check.name, &cell).trim_end())?;
        }
        let count = |is: fn(&Verdict) -> bool| {
            self.columns.iter().flat_map(|(_, results)| results).filter(|(_, verdict)| is(verdict)).count()
        };
        let passed = count(|verdict| matches!(verdict, Verdict::Passed));
        let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
        writeln!(out, "\n{passed} passed, {} failed, {skipped} skipped", self.failed())?;
        out.flush()
    }
}

fn failed_in(results: &[(&Check, Verdict)]) -> usize {
    results.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))).count()
}

fn word(result: Option<&(&Check, Verdict)>) -> &'static str {
    match result {
        Some((_, Verdict::Passed)) => "pass",
        Some((_, Verdict::Failed(_))) => "FAIL",
        Some((_, Verdict::Skipped(_))) => "skip",
        None => "–",
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::tools::interop::checks;
    use crate::tools::interop::column::Column;
    use crate::tools::interop::program::Verdict;

    #[test]
    fn a_row_for_each_check_and_a_column_for_each_program() {
        let [ping, crud, plain] = ["ping", "crud", "plain"].map(|name| checks::by_name(name).unwrap());
        let mut table = Table::new(&[plain, ping, crud]);
        table.begin(Column::Go);
        table.note(crud, Verdict::Failed("no".into()));
        table.note(ping, Verdict::Passed);
        table.begin(Column::ServerJava);
        table.note(ping, Verdict::Skipped("never".into()));

        let mut out = Vec::new();
        table.print(&mut out).unwrap();

        let lines = ["check  go    server-java", "ping   pass  skip", "crud   FAIL  –"];
        let expected = format!("{}\n\n1 passed, 1 failed, 1 skipped\n", lines.join("\n"));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!((table.failed(), table.failed_in_last()), (1, 0));
    }
}
