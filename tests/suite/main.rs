//! Every integration test, in one binary so that it links once. A file a topic; `support` holds the oracles.

#![expect(clippy::disallowed_methods, reason = "a test measures its own waits by the machine's clock")]

mod audit;
mod bounds;
mod callbacks;
mod callers;
mod cli;
mod crash;
mod dispatch;
mod fuzz;
mod http_api;
mod http_provider;
mod ledger;
mod ledger_commits;
mod ledger_evidence;
mod ledger_interleavings;
mod ledger_queues;
mod lifecycle;
mod mail_promise;
mod message;
mod nodes;
mod openapi_contract;
mod process;
mod promise;
mod proof;
mod real_smpp;
mod real_smtp;
mod routing;
mod sandbox;
mod secrets;
mod smpp;
mod smpp_promise;
mod smtp;
mod speed;
mod statement;
mod store;
mod support;
mod tidy;
