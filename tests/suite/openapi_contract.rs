//! schemathesis, a tool that we did not write, reads the documents that the daemon serves and asks as they say, and as
//! they do not: no answer may be a 5xx, be missing in its document, or have another form than that.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Plan, Strategy};
use crate::support::http_oracle::HttpOracle;

/// Everything that the tool checks but this: it takes every request that fits the schema for one that must succeed, and
/// what JSON Schema cannot say (one of two parameters, a key that was used before) is refused all the same.
const ALL_BUT: &str = "positive_data_acceptance";

/// A hook that the tool can call, since an API key proves it.
const HOOK: &str = "[hook.probe]\nspeaks = \"generic\"\ntenant = \"shop\"\nauth = \"key\"\nkind = \"password_reset\"\n\
    expires_in = \"10m\"\n[hook.probe.at]\nto = [{ sms = \"/phone\" }]\nevent_id = \"/id\"\ndata = { code = \"/code\" }\n";

/// Runs the tool over a document, in a directory of its own; `Err` is what it found.
async fn hold_to(document: &str, base: &str, key: &str, examples: u8, more: &[&str]) -> Result<(), String> {
    let program = std::env::var("SENDONCE_TEST_SCHEMATHESIS")
        .expect("SENDONCE_TEST_SCHEMATHESIS must name the program schemathesis");
    let dir = tempfile::tempdir().expect("a directory");
    // On a failure it looks for more of them: nobody waits for that for ever.
    let mut command = Command::new("timeout");
    // Lines go onto the wire as they are.
    let lines = "import schemathesis\nschemathesis.serializer.alias('application/x-ndjson', 'text/plain')\n";
    std::fs::write(dir.path().join("lines.py"), lines).expect("a file");
    command.env("SCHEMATHESIS_HOOKS", "lines").env("PYTHONPATH", dir.path());
    command.current_dir(dir.path()).args(["--kill-after=10", "180", &program]);
    command.args(["run", document, "--url", base, "--no-color"]);
    command.args(["--header", &format!("Authorization: Bearer {key}"), "--request-timeout", "30"]);
    command.args(["--generation-deterministic", "--max-examples", &examples.to_string()]);
    command.args(["--checks", "all", "--exclude-checks", ALL_BUT, "--no-shrink", "--max-failures", "10"]).args(more);
    let run = tokio::task::spawn_blocking(move || command.output()).await.expect("a run").expect("the program");
    let said = String::from_utf8_lossy(&run.stdout).replace(key, "KEY");
    if run.status.success() { Ok(()) } else { Err(format!("{said}\n{}", String::from_utf8_lossy(&run.stderr))) }
}

async fn holds_to(document: &str, base: &str, key: &str, examples: u8, more: &[&str]) {
    let held = hold_to(document, base, key, examples, more).await;
    assert!(held.is_ok(), "{}", held.err().unwrap_or_default());
}

/// The document, with what this daemon is configured to know where the form alone leaves it open, so that most requests
/// reach the ledger, and with so few names of events that some come twice.
fn narrowed(mut document: Value, dir: &Path) -> String {
    let event =
        &mut document["paths"]["/v1/notifications"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    let sms = |number: &str| json!({ "sms": number });
    event["required"] = json!(["event_id", "kind", "to", "data", "expires_in"]);
    let properties = event["properties"].as_object_mut().expect("properties");
    properties.remove("expires_at");
    properties["event_id"] = json!({ "enum": (0..10).map(|n| format!("reset-{n}")).collect::<Vec<_>>() });
    properties["kind"] = json!({ "enum": ["password_reset"] });
    properties["to"] =
        json!({ "enum": [sms("+84901234567"), sms("+15005550001"), sms("+15005550007"), sms("+15005551207")] });
    properties["expires_in"] = json!({ "type": "integer", "minimum": 60, "maximum": 86_400 });
    properties["data"] = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["code"],
        "properties": { "code": { "type": "string", "pattern": "^[0-9]{6}$" } },
    });
    for method in ["get", "post"] {
        document["paths"]["/v1/receipts/{provider}"][method]["parameters"][0]["schema"] = json!({ "enum": ["probe"] });
    }
    let hook = &mut document["paths"]["/v1/hooks/{name}"]["post"];
    hook["parameters"][0]["schema"] = json!({ "enum": ["probe"] });
    hook["requestBody"]["content"]["application/json"]["schema"] = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["id", "phone", "code"],
        "properties": {
            "id": { "type": "string", "pattern": "^[a-z0-9]{8,20}$" },
            "phone": { "enum": ["+84901234567", "+15005550001"] },
            "code": { "type": "string", "pattern": "^[0-9]{6}$" },
        },
    });
    let line = |id: &str| crate::support::daemon::event(id).to_string().replacen('{', "{\"idempotency_key\":\"k\",", 1);
    let batch = &mut document["paths"]["/v1/notifications:batch"]["post"]["requestBody"];
    batch["content"]["application/x-ndjson"]["schema"] = json!({ "enum": [line("b1"), line("b2") + "\n{", "{}\n\n"] });
    let file = dir.join("narrowed.json");
    std::fs::write(&file, document.to_string()).expect("a file");
    file.display().to_string()
}

#[tokio::test]
async fn every_answer_is_one_that_the_served_documents_tell_of() {
    let oracle = HttpOracle::start().await;
    let plan = Plan::new().sandbox().http("probe", &oracle.url(), &[Strategy::Receipts]);
    let daemon = Daemon::start(plan.toml(HOOK)).await;
    let (url, admin) = (daemon.url(), format!("http://{}", daemon.admin_address()));
    let dir = tempfile::tempdir().expect("a directory");
    let narrowed = narrowed(daemon.get("/openapi.json").await.json(), dir.path());
    let stateful = ["--mode", "positive", "--phases", "fuzzing,stateful"];
    holds_to(&narrowed, &url, daemon.key(), 15, &stateful).await;
    holds_to(&format!("{url}/openapi.json"), &url, daemon.key(), 8, &["--phases", "coverage,fuzzing"]).await;
    holds_to(&format!("{admin}/openapi.json"), &admin, daemon.key(), 4, &["--phases", "coverage,fuzzing"]).await;

    let counts = daemon.get("/v1/audit/account").await.json()["counts"].clone();
    assert!(counts["notifications"].as_u64().is_some_and(|n| n >= 5), "few requests reached the ledger: {counts}");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn an_answer_that_the_documents_leave_out_is_found() {
    let daemon = Daemon::start(Plan::new().sandbox()).await;
    let dir = tempfile::tempdir().expect("a directory");
    let mut document = daemon.get("/openapi.json").await.json();
    let answers = document["paths"]["/v1/notifications"]["post"]["responses"].as_object_mut().expect("answers");
    assert!(answers.remove("409").is_some(), "an event under another key");
    let narrowed = narrowed(document, dir.path());
    let only = ["--include-name", "POST /v1/notifications", "--mode", "positive", "--phases", "fuzzing"];
    let found = hold_to(&narrowed, &daemon.url(), daemon.key(), 30, &only).await.expect_err("one answer is missing");
    assert!(found.contains("Undocumented status code") && found.contains("Received: 409"), "{found}");
}
