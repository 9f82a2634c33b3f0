//! A batch as rows of bound values: a third of the work that the same rows make as JSON, which has to be read and searched
//! for every cell.

use std::sync::{Arc, OnceLock};

use sqlx::Arguments as _;
use sqlx::sqlite::SqliteArguments;

/// How many rows the texts of a statement hold. Rows that are left over are NULL, and pass for nothing.
const SIZES: [usize; 4] = [1, 4, 16, 64];

/// The most rows that one text holds.
pub(super) const MOST: usize = SIZES[SIZES.len() - 1];

/// A statement over a batch of rows, with one constant text for each size.
pub struct Batched {
    before: &'static str,
    columns: usize,
    after: &'static str,
    texts: [OnceLock<String>; SIZES.len()],
}

impl Batched {
    /// A statement that has `(VALUES …)` of `columns` columns between `before` and `after`.
    pub(super) const fn new(before: &'static str, columns: usize, after: &'static str) -> Self {
        Self { before, columns, after, texts: [const { OnceLock::new() }; SIZES.len()] }
    }

    /// The text for up to `rows` rows; `rows` is at most [`MOST`].
    pub(super) fn text(&'static self, rows: usize) -> &'static str {
        let place = SIZES.iter().position(|size| *size >= rows).unwrap_or(SIZES.len() - 1);
        self.texts[place].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(", "));
            format!("{}(VALUES {}){}", self.before, vec![row; SIZES[place]].join(", "), self.after)
        })
    }

    /// All its texts.
    pub fn texts(&'static self) -> impl Iterator<Item = &'static str> {
        SIZES.into_iter().map(|size| self.text(size))
    }

    /// The values of `items`, each as `write` writes them.
    pub(super) fn bind<T>(&self, items: &[T], write: impl Fn(&mut Cells, &T)) -> SqliteArguments {
        let mut cells = Cells { arguments: SqliteArguments::default(), last: vec![None; self.columns], column: 0 };
        cells.arguments.reserve(items.len() * self.columns, 0);
        for item in items {
            cells.column = 0;
            write(&mut cells, item);
            debug_assert_eq!(cells.column, self.columns, "{}", self.before);
        }
        cells.arguments
    }
}

/// Writes the cells of one row after the other.
pub(super) struct Cells {
    arguments: SqliteArguments,
    /// The last text of each column. Most columns of a batch say the same in every row (states, names of tenants and
    /// providers), and sharing it spares two allocations here and their release on the writer's thread.
    last: Vec<Option<Arc<str>>>,
    column: usize,
}

impl Cells {
    fn add<'v, T: sqlx::Encode<'v, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>>(&mut self, value: T) -> &mut Self {
        // Integers, texts and blobs have no way not to be encoded.
        let _infallible = self.arguments.add(value);
        self.column += 1;
        self
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        self.add(bytes)
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let last = &mut self.last[self.column];
        let shared = match last {
            Some(shared) if **shared == *text => shared.clone(),
            _ => last.insert(text.into()).clone(),
        };
        self.add(shared)
    }

    pub(super) fn int(&mut self, number: impl Into<i64>) -> &mut Self {
        self.add(number.into())
    }

    pub(super) fn opt_blob(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        self.add(bytes)
    }

    pub(super) fn opt_text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.add(None::<&str>),
        }
    }

    pub(super) fn opt_int(&mut self, number: Option<impl Into<i64>>) -> &mut Self {
        self.add(number.map(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static STATEMENT: Batched = Batched::new("INSERT INTO t SELECT * FROM ", 2, " WHERE column1 IS NOT NULL");

    #[test]
    fn a_text_holds_the_rows_that_are_wanted_and_few_more() {
        for (rows, size) in [(1, 1), (2, 4), (4, 4), (5, 16), (64, 64)] {
            assert_eq!(STATEMENT.text(rows).matches("(?, ?)").count(), size, "{rows} rows");
        }
        assert_eq!(STATEMENT.text(1), "INSERT INTO t SELECT * FROM (VALUES (?, ?)) WHERE column1 IS NOT NULL");
        let write = |row: &mut Cells, n: &i64| {
            row.int(*n).opt_text(None);
        };
        assert_eq!(STATEMENT.bind(&[1, 2, 3], write).len(), 6);
    }
}
