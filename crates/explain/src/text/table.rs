//! A table of text: columns as wide as their cells, numbers to the right.

/// A table under construction.
pub(super) struct Table {
    /// The columns whose cells stand to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

/// What stands before each line.
const INDENT: &str = "  ";

/// What stands between two columns.
const GAP: &str = "  ";

impl Table {
    /// A table with these headings; one that ends with `#` is that of numbers.
    pub(super) fn new<T: AsRef<str>>(headings: impl IntoIterator<Item = T>) -> Self {
        let headings: Vec<String> = headings.into_iter().map(|heading| heading.as_ref().to_owned()).collect();
        let right = headings.iter().map(|heading| heading.ends_with('#')).collect();
        let first = headings.iter().map(|heading| heading.trim_end_matches('#').to_owned()).collect();
        Table { right, rows: vec![first] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines of the table.
    pub(super) fn lines(&self) -> Vec<String> {
        let columns = self.right.len();
        let width = |column: usize| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let padded = (0..columns).map(|column| {
                let (text, width) = (cell(row, column), widths[column]);
                if self.right[column] { format!("{text:>width$}") } else { format!("{text:<width$}") }
            });
            format!("{INDENT}{}", padded.collect::<Vec<_>>().join(GAP)).trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

fn cell(row: &[String], column: usize) -> &str {
    row.get(column).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells_and_numbers_stand_to_the_right() {
        let mut table = Table::new(["NODE", "TOTAL#", "WHY"]);
        table.row(["a-long-name".into(), "7".into(), "x".into()]);
        table.row(["b".into(), "1234567".into()]);
        assert_eq!(
            table.lines(),
            ["  NODE           TOTAL  WHY", "  a-long-name        7  x", "  b            1234567",]
        );
    }
}
