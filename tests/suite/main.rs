//! Every integration test, in one binary so that it links once. A file a topic; `support` holds the oracles.

mod http_api;
mod ledger;
mod lifecycle;
mod message;
mod audit;
mod store;
mod cli;
mod sandbox;
mod smtp;
mod support;
mod tidy;
