//! Tables in several forms: in columns, as CSV and as Markdown.

use std::fmt::Display;

use anstyle::Style;

/// A text in a table, with its style in columns.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Option<Style>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: None }
    }
}

impl Cell {
    /// A text with a style.
    pub fn styled(text: impl Into<String>, style: Option<Style>) -> Self {
        Self { text: text.into(), style }
    }
}

/// Rows of cells below a head.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table of a head alone.
    #[must_use]
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&cell| cell.into()).collect()] }
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        self.rows.push(row.into_iter().collect());
    }

    /// In columns; the first is aligned left, the others right.
    #[must_use]
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let line = |row: &Vec<Cell>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, &width))| {
                let Cell { text, style } = cell;
                // Styles have no width.
                let room = " ".repeat(width - text.chars().count());
                let text = style.map_or_else(|| text.clone(), |style| painted(style, text));
                if column == 0 { text + &room } else { room + &text }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    /// As RFC 4180 describes it, but for the ends of lines, which are those of other text.
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |cell: &Cell| match cell.text.contains(['"', ',', '\n', '\r']) {
            true => format!("\"{}\"", cell.text.replace('"', "\"\"")),
            false => cell.text.clone(),
        };
        let line = |row: &Vec<Cell>| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
        self.rows.iter().map(line).collect()
    }

    /// As a table of GitHub's Markdown; columns but the first are aligned right.
    #[must_use]
    pub fn markdown(&self) -> String {
        let escaped = |cell: &Cell| {
            let mut text = String::new();
            for c in cell.text.chars() {
                match c {
                    '\n' | '\r' => text.push(' '),
                    // Of what a name may hold, this would be read as layout.
                    '|' | '\\' | '`' | '*' | '_' | '<' | '[' | '&' => text.extend(['\\', c]),
                    c => text.push(c),
                }
            }
            text
        };
        let line =
            |row: &Vec<Cell>| format!("| {} |\n", row.iter().map(escaped).collect::<Vec<_>>().join(" | "));
        let rule = format!("|---{}|\n", "|--:".repeat(self.rows[0].len().saturating_sub(1)));
        let [head, rows @ ..] = &self.rows[..] else { return String::new() };
        line(head) + &rule + &rows.iter().map(line).collect::<String>()
    }
}

/// A text in a style, which whoever prints it removes if nobody sees it.
pub fn painted(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;

    use super::*;

    const GOOD: Style = AnsiColor::Green.on_default();

    #[test]
    fn cells_are_escaped_as_each_form_wants() {
        let mut table = Table::new(&["case", "time"]);
        table.push(["a, \"b\"|c_1".into(), "12".into()]);
        table.push(["two\nlines".into(), Cell::styled("3", Some(GOOD))]);
        assert_eq!(table.csv(), "case,time\n\"a, \"\"b\"\"|c_1\",12\n\"two\nlines\",3\n");
        assert_eq!(
            table.markdown(),
            "| case | time |\n|---|--:|\n| a, \"b\"\\|c\\_1 | 12 |\n| two lines | 3 |\n"
        );
        let text = table.text();
        assert!(text.ends_with(&format!("     {}\n", painted(GOOD, "3"))), "{text:?}");
    }
}
