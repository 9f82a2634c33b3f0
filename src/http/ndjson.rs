//! Answers that are lines of JSON (NDJSON), sent as they come.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt as _, unfold};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use tokio::sync::mpsc;

/// The media type.
pub const MEDIA_TYPE: &str = "application/x-ndjson";

/// One line, with its end.
pub fn line(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

/// What comes over a channel, until nobody sends any more.
pub fn received<T: Send + 'static>(receiver: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send + 'static {
    unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
}

/// The answer 200 with these lines.
pub fn answer(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
    ([(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, "no-store")], body).into_response()
}
