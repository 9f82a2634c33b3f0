//! A body as lines, of which no more than one is held.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::http::Limits;
use crate::http::problem::{Code, Problem};

/// What a line is, with its number, counted from 1.
#[derive(Debug)]
pub(super) enum Line {
    /// All of it, without its end.
    Whole(usize, Vec<u8>),
    /// It fails alone; others follow.
    Bad(usize, Problem),
    /// Nothing follows.
    Broken(usize, Problem),
}

/// Reads lines. Each must be whole within the time that a body has. Empty ones are passed over, but count.
pub(super) struct Lines {
    body: Body,
    /// What has arrived and is not yet read.
    chunk: Bytes,
    number: usize,
    max_lines: usize,
    max_length: usize,
    time: Duration,
    over: bool,
}

impl Lines {
    pub(super) fn new(body: Body, limits: &Limits) -> Self {
        let (max_lines, max_length, time) = (limits.batch_lines, limits.body, limits.body_time);
        Self { body, chunk: Bytes::new(), number: 0, max_lines, max_length, time, over: false }
    }

    /// The next line that is not empty. A last one without its end is one.
    pub(super) async fn next(&mut self) -> Option<Line> {
        while !self.over {
            let line = match timeout(self.time, self.read()).await {
                Ok(line) => line?,
                Err(_) => self.broken(Code::RequestTimeout, "the line did not arrive in time"),
            };
            if !matches!(&line, Line::Whole(_, text) if text.trim_ascii().is_empty()) {
                return Some(line);
            }
        }
        None
    }

    async fn read(&mut self) -> Option<Line> {
        let (mut line, mut length) = (vec![], 0_usize);
        loop {
            if self.chunk.is_empty() {
                match self.body.frame().await {
                    Some(Ok(frame)) => {
                        self.chunk = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    None => {
                        self.over = true;
                        return if length == 0 { None } else { Some(self.whole(line, length)) };
                    }
                    Some(Err(_)) => return Some(self.broken(Code::BadRequest, "the body broke off")),
                }
            }
            if length == 0 && self.number == self.max_lines {
                let detail = format!("at most {} lines are taken; send the rest in another request", self.max_lines);
                return Some(self.broken(Code::BodyTooLarge, detail));
            }
            let end = self.chunk.iter().position(|byte| *byte == b'\n');
            let part = self.chunk.split_to(end.unwrap_or(self.chunk.len()));
            length = length.saturating_add(part.len());
            if length <= self.max_length {
                line.extend_from_slice(&part);
            }
            if end.is_some() {
                drop(self.chunk.split_to(1));
                return Some(self.whole(line, length));
            }
        }
    }

    fn whole(&mut self, line: Vec<u8>, length: usize) -> Line {
        self.number += 1;
        if length > self.max_length {
            let detail = format!("a line may have at most {} bytes", self.max_length);
            return Line::Bad(self.number, Problem::new(Code::BodyTooLarge, detail));
        }
        Line::Whole(self.number, line)
    }

    fn broken(&mut self, code: Code, detail: impl Into<std::borrow::Cow<'static, str>>) -> Line {
        self.over = true;
        self.number += 1;
        Line::Broken(self.number, Problem::new(code, detail))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn read(chunks: &[&'static str], max_lines: usize) -> Vec<String> {
        let chunks: Vec<_> =
            chunks.iter().map(|c| Ok::<_, std::convert::Infallible>(Bytes::from_static(c.as_bytes()))).collect();
        let limits = Limits { body: 4, batch_lines: max_lines, ..Limits::default() };
        let mut lines = Lines::new(Body::from_stream(stream::iter(chunks)), &limits);
        let mut read = vec![];
        while let Some(line) = lines.next().await {
            read.push(match line {
                Line::Whole(number, text) => format!("{number} {}", String::from_utf8_lossy(&text)),
                Line::Bad(number, problem) => format!("{number} bad {}", problem.code().name()),
                Line::Broken(number, problem) => format!("{number} broken {}", problem.code().name()),
            });
        }
        read
    }

    #[tokio::test]
    async fn lines_are_the_same_however_the_body_is_cut() {
        let whole = ["1 ab", "3 abcd", "4 bad body-too-large", "5 c"];
        assert_eq!(read(&["ab\n\nabcd\nabcde\nc"], 9).await, whole);
        assert_eq!(read(&["a", "b\n", "\na", "bcd", "\nabc", "d", "e\nc", "\n"], 9).await, whole);
        assert_eq!(read(&[], 9).await, [""; 0]);
        assert_eq!(read(&["\n \r\n"], 9).await, [""; 0]);
    }

    #[tokio::test]
    async fn more_lines_than_are_taken_end_it() {
        assert_eq!(read(&["a\nb\n"], 2).await, ["1 a", "2 b"]);
        assert_eq!(read(&["a\nb\nc\nd\n"], 2).await, ["1 a", "2 b", "3 broken body-too-large"]);
        assert_eq!(read(&["a\n\n", "c"], 2).await, ["1 a", "3 broken body-too-large"]);
    }
}
