//! Where answers go: stdout, as tables and sentences for people or as JSON for programs, and nothing else there.
//!
//! Everything that came from outside passes through [`visible`] on its way to a person. Styles are written to a
//! terminal only.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

use crate::stop::{Stop, visible};

/// The command's answer.
pub(crate) struct Output {
    json: bool,
    bold: bool,
    stdout: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let bold = !json && stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self { json, bold, stdout: BufWriter::with_capacity(64 * 1024, stdout) }
    }

    /// Whether a program reads.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a terminal shows what is written, so that a progress bar would stand in its way.
    pub(crate) fn is_shown(&self) -> bool {
        self.stdout.get_ref().is_terminal()
    }

    /// One JSON document on one line.
    pub(crate) fn document(&mut self, document: &impl Serialize) -> Result<(), Stop> {
        serde_json::to_writer(&mut self.stdout, document).map_err(io::Error::from)?;
        Ok(self.stdout.write_all(b"\n")?)
    }

    /// One line for people.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> Result<(), Stop> {
        Ok(writeln!(self.stdout, "{}", line.as_ref())?)
    }

    /// A heading for people.
    pub(crate) fn heading(&mut self, heading: &str) -> Result<(), Stop> {
        if self.bold { self.line(format!("\u{1b}[1m{heading}\u{1b}[0m")) } else { self.line(heading) }
    }

    /// A table for people.
    pub(crate) fn table(&mut self, table: &Grid) -> Result<(), Stop> {
        self.line(table.render())
    }

    /// The stream itself, for formats that write themselves.
    pub(crate) fn raw(&mut self) -> &mut impl Write {
        &mut self.stdout
    }

    /// Everything is out once this returns.
    pub(crate) fn finish(&mut self) -> Result<(), Stop> {
        Ok(self.stdout.flush()?)
    }
}

/// A table without lines: a header, columns that are as wide as they must be, two spaces in between.
pub(crate) struct Grid {
    table: Table,
    right: Vec<usize>,
}

impl Grid {
    /// A table with these columns; those whose name ends in `>` stand to the right, as numbers do.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = Self::bare();
        table.table.set_header(columns.iter().map(|name| name.trim_end_matches('>')));
        table.right = (0..columns.len()).filter(|at| columns[*at].ends_with('>')).collect();
        table
    }

    /// A table without a header, all to the left.
    pub(crate) fn bare() -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING).force_no_tty();
        Self { table, right: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        self.table.add_row(cells.into_iter().map(|cell| Cell::new(visible(cell.as_ref()))));
    }

    /// These columns stand to the right.
    pub(crate) fn right(mut self, columns: &[usize]) -> Self {
        self.right.extend_from_slice(columns);
        self
    }

    fn render(&self) -> String {
        let mut table = self.table.clone();
        for column in table.column_iter_mut() {
            if self.right.contains(&column.index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table.lines().map(|line| format!(" {}", line.trim_end())).collect();
        lines.join("\n")
    }
}

/// A whole number with its thousands apart: `1,234,567`.
pub(crate) fn grouped(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The same with its sign, as a movement of credits: `+1,234`, `-40`, `0`.
pub(crate) fn signed(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    if number > 0 { format!("+{}", grouped(number)) } else { grouped(number) }
}

/// `1 job`, `2 jobs`, `2,000 entries`.
pub(crate) fn count_of(count: u64, what: &str) -> String {
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{} {stem}ies", grouped(count)),
        (_, None) => format!("{} {what}s", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_their_thousands_apart() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (-1_234_567, "-1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(grouped(i64::MIN), "-9,223,372,036,854,775,808");
        assert_eq!([signed(40), signed(-40), signed(0)], ["+40", "-40", "0"]);
        assert_eq!([count_of(1, "entry"), count_of(2_000, "job")], ["1 entry", "2,000 jobs"]);
        assert_eq!(count_of(0, "entry"), "0 entries");
    }

    #[test]
    fn a_table_shows_what_would_steer_a_terminal() {
        let mut grid = Grid::new(&["job", "cost>"]);
        grid.row(["a\u{1b}[1m", "5"]);
        grid.row(["b", "1,000"]);
        assert_eq!(grid.render(), "  job          cost\n  a\\u{1b}[1m      5\n  b           1,000");
    }
}
