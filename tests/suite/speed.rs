//! `sendonce bench` on a tiny load: its figures add up, and nothing is left behind. How large they are is no test's
//! business.

use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn bench(figures: &str, more: &[&str]) -> (TempDir, std::process::Output) {
    let dir = TempDir::new().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendonce"));
    command.args(["bench", figures, "--secs", "1", "--rows", "200", "--rate", "100", "--connections", "8"]);
    command.args(more).arg("--dir").arg(dir.path()).stdin(Stdio::null());
    let output = command.output().expect("the program");
    (dir, output)
}

/// The report of a run whose counts agree, and which left nothing behind.
fn report(figures: &str) -> Value {
    let (dir, output) = bench(figures, &["--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{figures}: {said}{}", String::from_utf8_lossy(&output.stdout));
    let left = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 0, "the run's directory is gone");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["faults"], serde_json::json!([]));
    assert_eq!(report["store"], "sqlite");
    report
}

fn figure<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["figures"].as_array().expect("figures");
    let found = all.iter().find(|f| f["name"].as_str().is_some_and(|n| n.starts_with(name)));
    let figure = found.unwrap_or_else(|| panic!("{name}: {report}"));
    assert!(figure["value"].as_f64().expect("a value") > 0.0, "{figure}");
    figure
}

fn fact(figure: &Value, name: &str) -> f64 {
    let facts = figure["facts"].as_array().expect("facts").iter();
    let found = facts.clone().find(|f| f[0] == name).and_then(|f| f[1].as_f64());
    found.unwrap_or_else(|| panic!("{name}: {figure}"))
}

#[test]
fn admissions_stand_beside_their_ceiling() {
    let report = report("admit");
    let closed = figure(&report, "admissions, 8 connections");
    let (value, ceiling) = (closed["value"].as_f64().expect("a value"), closed["ceiling"].as_f64().expect("a ceiling"));
    assert!((closed["ratio"].as_f64().expect("a ratio") - value / ceiling).abs() < 1e-9);
    let latency = &closed["latency_ms"];
    assert!(latency["p50"].as_f64() <= latency["p99"].as_f64() && latency["p99"].as_f64() <= latency["max"].as_f64());
    for name in ["bare group commit", "start to ready", "resident memory, idle", "admissions at 100/s, sending too"] {
        figure(&report, name);
    }
}

#[test]
fn every_message_of_a_backlog_reaches_the_provider_once() {
    let report = report("dispatch");
    // A held lane lets one message through before.
    let drained = fact(figure(&report, "backlog of 200 drained"), "received");
    assert!((199.0..=200.0).contains(&drained), "{drained}");
    for name in ["admitted and sent together at 100/s", "provider that takes 50 ms", "post to first byte"] {
        figure(&report, name);
    }
}

#[test]
fn what_is_read_is_all_there_is() {
    let status = report("status");
    figure(&status, "statuses, 8");
    figure(&status, "statuses unchanged (304)");
    // The export may tell of itself.
    let records = fact(figure(&report("export"), "export, records"), "records");
    assert!((600.0..=601.0).contains(&records), "{records}");
}

#[test]
fn history_is_measured_at_each_length_and_a_person_can_read_it() {
    let (_dir, output) = bench("backlog", &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    for line in ["figure ", "claims beside 0 finished", "claims beside 200 finished", "admissions beside 200 finished"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_run_that_cannot_be_is_refused_before_it_starts() {
    let (_dir, output) = bench("admit", &["--store", "mysql://u:CANARY@h/d"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && !said.contains("CANARY"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendonce"));
    let output = command.args(["bench", "--dir", "/no/such/place"]).output().expect("the program");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
