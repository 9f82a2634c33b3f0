//! Reading a request: its body within bounds, its query and path without echo. And writing the answer as JSON.

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, RawQuery};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;

use super::Limits;
use super::problem::{Code, Problem};
use crate::domain::event::BadRequest;

/// Reads a whole body of at most `max` bytes in the time that a body has.
///
/// # Errors
/// 413, 408, or 400 for one that broke off.
pub async fn body(body: Body, headers: &HeaderMap, max: usize, limits: &Limits) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(Code::BodyTooLarge, format!("at most {max} bytes are taken"));
    let told = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if told.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > max)) {
        return Err(too_large());
    }
    match tokio::time::timeout(limits.body_time, Limited::new(body, max).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(Code::BadRequest, "the body broke off")),
        Err(_) => Err(Problem::new(Code::RequestTimeout, "the body did not arrive in time")),
    }
}

/// The one variable segment of a path. What does not decode names nothing.
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(_) => Err(Problem::not_found()),
        }
    }
}

/// An answer in JSON.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
            Err(_) => Problem::new(Code::Internal, "the answer cannot be written").into_response(),
        }
    }
}

/// The parameters of a query, each at most once. What nobody asks for is refused, so that a mistyped filter is not taken
/// for none.
pub struct Query(Vec<(String, String)>);

/// The longest query that is read, in bytes.
const MAX_QUERY: usize = 2048;

impl Query {
    /// Reads `application/x-www-form-urlencoded`.
    ///
    /// # Errors
    /// 400 when it is too long, names a parameter twice, or is not UTF-8 when decoded.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let bad = |what: &'static str| Problem::new(Code::BadRequest, what);
        if text.len() > MAX_QUERY {
            return Err(bad("the query is too long"));
        }
        let mut pairs: Vec<(String, String)> = vec![];
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text| decode(text).ok_or_else(|| bad("the query is not percent-encoded UTF-8"));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(bad("the query names a parameter twice"));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Takes one parameter, read by `read`.
    ///
    /// # Errors
    /// 400 that names it, when it does not read.
    pub fn take<T, E>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, Problem> {
        let Some(at) = self.0.iter().position(|(other, _)| other == name) else { return Ok(None) };
        let (_, value) = self.0.swap_remove(at);
        read(&value).map(Some).map_err(|_| Problem::from(BadRequest::new(name, "does not read as what it should be")))
    }

    /// Refuses parameters that nobody took.
    ///
    /// # Errors
    /// 400.
    pub fn nothing_else(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name = crate::domain::strict_json::showable(name).unwrap_or("an unknown parameter");
                Err(BadRequest::new(name, "is not known here").into())
            }
        }
    }
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || (bytes.next()? as char).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(RawQuery(text)) = RawQuery::from_request_parts(parts, state).await;
        Self::parse(text.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, Problem>) -> Option<Code> {
        result.err().map(|problem| problem.code())
    }

    #[test]
    fn a_query_is_decoded_and_nothing_in_it_is_passed_over() {
        let mut query = Query::parse("from=2026-11-29T12%3A00%3A00%2B07:00&what=a+b").expect("a query");
        let text = |value: &str| Ok::<_, ()>(value.to_owned());
        assert_eq!(query.take("from", text), Ok(Some("2026-11-29T12:00:00+07:00".to_owned())));
        assert_eq!(query.take("to", text), Ok(None));
        assert_eq!(code(query.nothing_else()), Some(Code::BadRequest));
        for bad in ["a=1&a=2", "a=%zz", "a=%ff", "a=%4"] {
            assert_eq!(code(Query::parse(bad)), Some(Code::BadRequest), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_body_over_its_limit_is_refused_with_or_without_its_length_told() {
        let limits = Limits::default();
        let read = async |length: usize, headers: HeaderMap| {
            code(body(Body::from(vec![b' '; length]), &headers, 10, &limits).await)
        };
        let mut told = HeaderMap::new();
        told.insert(CONTENT_LENGTH, "11".parse().expect("a header value"));
        assert_eq!(read(10, HeaderMap::new()).await, None);
        assert_eq!(read(11, HeaderMap::new()).await, Some(Code::BodyTooLarge));
        assert_eq!(read(0, told).await, Some(Code::BodyTooLarge));
    }
}
