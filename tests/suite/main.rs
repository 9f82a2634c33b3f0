//! Every integration test, in one binary so that it links once. A file a topic; `support` holds the oracles.

mod http_provider;
mod support;
