//! The log as a stream of lines, a page at a time, so that an export of any size needs the memory of one page.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;

use super::record_line::{csv_header, csv_lines, ndjson_line};
use crate::domain::outcome::codes;
use crate::ledger::{Ledger, LedgerError};
use crate::store::rows::{LogFilter, LogRow};

/// Rows that are read at once.
pub const PAGE: u32 = 1000;

codes!(
    /// The form of an export.
    Format {
        /// One JSON object a line.
        Ndjson = "ndjson",
        /// Comma-separated values with a header (RFC 4180).
        Csv = "csv",
    }
);

impl Format {
    /// For `Content-Type`. NDJSON has no registered type; CSV's is RFC 7111's.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    fn lines(self, rows: &[LogRow]) -> String {
        match self {
            Self::Ndjson => rows.iter().map(ndjson_line).collect(),
            Self::Csv => csv_lines(rows),
        }
    }
}

/// Where the rows of an export come from.
#[async_trait]
pub trait LogPages: Send + Sync + 'static {
    /// The position up to which the log is complete now.
    ///
    /// # Errors
    /// What the store reports.
    async fn end(&self) -> Result<i64, LedgerError>;

    /// Up to `limit` matching rows after position `after`, in order of position.
    ///
    /// # Errors
    /// What the store reports.
    async fn page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError>;
}

#[async_trait]
impl LogPages for Ledger {
    async fn end(&self) -> Result<i64, LedgerError> {
        self.log_end().await
    }

    async fn page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError> {
        self.log_page(filter, after, limit).await
    }
}

struct Export<P> {
    pages: P,
    filter: LogFilter,
    format: Format,
    after: i64,
    /// Whether the first piece was made.
    begun: bool,
    over: bool,
}

impl<P: LogPages> Export<P> {
    /// The next piece: the header alone, or a page.
    async fn next(&mut self) -> Result<Option<Bytes>, LedgerError> {
        if !self.begun {
            let end = self.pages.end().await?;
            self.filter.up_to = Some(self.filter.up_to.map_or(end, |wanted| wanted.min(end)));
            self.begun = true;
            if self.format == Format::Csv {
                return Ok(Some(csv_header().into()));
            }
        }
        let rows = self.pages.page(&self.filter, self.after, PAGE).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        self.after = last.pos;
        self.over = rows.len() < PAGE as usize;
        Ok(Some(self.format.lines(&rows).into()))
    }
}

/// The matching rows as lines.
///
/// The stream ends where the log is complete when it begins, however fast new rows come and however slowly it is read. It
/// reads a page when it is polled for one and holds no transaction in between. An error is its last item, so that whoever
/// passes it on can break off instead of ending well. Recording that the export was taken is the caller's part.
pub fn stream<P: LogPages>(
    pages: P,
    filter: LogFilter,
    format: Format,
) -> impl Stream<Item = Result<Bytes, LedgerError>> + Send + 'static {
    let export = Export { pages, filter, format, after: 0, begun: false, over: false };
    unfold(export, async |mut export| {
        if export.over {
            return None;
        }
        let piece = export.next().await.transpose()?;
        export.over |= piece.is_err();
        Some((piece, export))
    })
}
