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
    /// How many rows match now.
    ///
    /// # Errors
    /// What the store reports.
    async fn count(&self, filter: &LogFilter) -> Result<u64, LedgerError>;

    /// Up to `limit` matching rows after position `after`, in order of position.
    ///
    /// # Errors
    /// What the store reports.
    async fn page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError>;
}

#[async_trait]
impl LogPages for Ledger {
    async fn count(&self, filter: &LogFilter) -> Result<u64, LedgerError> {
        self.log_count(filter).await
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
    /// Rows still to come; `None` before the first page.
    left: Option<u64>,
    over: bool,
}

impl<P: LogPages> Export<P> {
    /// The next piece: the header alone, or a page.
    async fn next(&mut self) -> Result<Option<Bytes>, LedgerError> {
        let left = match self.left {
            Some(left) => left,
            None => {
                let count = self.pages.count(&self.filter).await?;
                self.left = Some(count);
                if self.format == Format::Csv {
                    return Ok(Some(csv_header().into()));
                }
                count
            }
        };
        let limit = PAGE.min(u32::try_from(left).unwrap_or(PAGE));
        if limit == 0 {
            return Ok(None);
        }
        let rows = self.pages.page(&self.filter, self.after, limit).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        self.after = last.pos;
        self.left = Some(left.saturating_sub(rows.len() as u64));
        Ok(Some(self.format.lines(&rows).into()))
    }
}

/// The matching rows as lines.
///
/// The log only grows at its end, so that the rows which match at the beginning are the first so many: the stream ends
/// after those, however fast new ones come and however slowly it is read. It reads a page when it is polled for one and
/// holds no transaction in between. An error is its last item, so that whoever passes it on can break off instead of
/// ending well. Recording that the export was taken is the caller's part.
pub fn stream<P: LogPages>(
    pages: P,
    filter: LogFilter,
    format: Format,
) -> impl Stream<Item = Result<Bytes, LedgerError>> + Send + 'static {
    let export = Export { pages, filter, format, after: 0, left: None, over: false };
    unfold(export, async |mut export| {
        if export.over {
            return None;
        }
        let piece = export.next().await.transpose()?;
        export.over = piece.is_err();
        Some((piece, export))
    })
}
