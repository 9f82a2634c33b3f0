//! A batch as one JSON parameter: an array of arrays, short blobs in hex. Long ones are a parameter of their own, because
//! JSON would double them and copy them for every cell.

use std::fmt::Write as _;

use data_encoding::HEXLOWER;

/// Writes a batch, row by row.
pub(super) struct Batch(String);

/// Writes the cells of one row.
pub(super) struct Cells<'a>(&'a mut String);

impl Batch {
    /// The rows of `items`, each as `write` writes it.
    pub(super) fn of<T>(items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Cells<'_>, T)) -> String {
        let mut batch = Self(String::from("["));
        for item in items {
            batch.comma();
            batch.0.push('[');
            write(&mut Cells(&mut batch.0), item);
            batch.0.push(']');
        }
        batch.0.push(']');
        batch.0
    }

    /// A flat array of blobs.
    pub(super) fn blobs<'a>(items: impl IntoIterator<Item = &'a [u8; 16]>) -> String {
        let mut batch = Self(String::from("["));
        let mut cells = Cells(&mut batch.0);
        for item in items {
            cells.blob(item);
        }
        batch.0.push(']');
        batch.0
    }

    fn comma(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }
}

impl Cells<'_> {
    fn next(&mut self) -> &mut String {
        if !self.0.ends_with('[') {
            self.0.push(',');
        }
        self.0
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        let out = self.next();
        out.push('"');
        HEXLOWER.encode_append(bytes, out);
        out.push('"');
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        // Codes and names, which are most texts, need no escape (RFC 8259 section 7).
        let plain = text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\');
        let out = self.next();
        if plain {
            out.push('"');
            out.push_str(text);
            out.push('"');
        } else {
            out.push_str(&serde_json::Value::from(text).to_string());
        }
        self
    }

    pub(super) fn int(&mut self, number: impl Into<i64>) -> &mut Self {
        let number: i64 = number.into();
        // A string takes whatever is written to it.
        let _infallible = write!(self.next(), "{number}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_an_array_of_rows_whatever_the_texts_hold() {
        let text = Batch::of(["[", "a\"\\\u{1}"], |row, text| {
            row.text(text).blob(&[0xab, 1]).int(-3);
        });
        let value: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
        assert_eq!(value, serde_json::json!([["[", "ab01", -3], ["a\"\\\u{1}", "ab01", -3]]));
        assert_eq!(Batch::blobs([&[1; 16], &[2; 16]]), format!("[\"{}\",\"{}\"]", "01".repeat(16), "02".repeat(16)));
        assert_eq!(Batch::blobs([]), "[]");
    }
}
