//! The same promise with the store in PostgreSQL.

use std::collections::BTreeSet;

use reqwest::Method;

use super::*;
use crate::support::daemon::event;
use crate::support::postgres::Database;

/// A daemon on a database of its own, whose provider takes everything.
async fn daemon_on_postgres() -> (HttpOracle, Database, Daemon) {
    let (oracle, database) = (oracle(taken).await, Database::fresh().await);
    let plan = Plan::new().http("probe", &oracle.url(), &[]).sms(&["probe"]);
    let daemon = Daemon::start(plan.postgres(&database)).await;
    (oracle, database, daemon)
}

/// Posts until the answer is not "repeat it".
async fn persist(daemon: &Daemon, event: &Value) -> String {
    let key = event["event_id"].as_str().unwrap_or_default();
    for _ in 0..200 {
        match daemon.try_call(Method::POST, "/v1/notifications", Some(key), Some(event)).await {
            Some(answer) if answer.status == 202 => return answer.id(),
            Some(answer) => assert_eq!(answer.status, 503, "{answer:?}"),
            None => {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{key} is never taken");
}

#[tokio::test]
async fn an_event_is_sent_once_and_the_audit_closes() {
    let (oracle, _database, daemon) = daemon_on_postgres().await;
    let event = event("pg-a");
    let answers = futures_util::future::join_all((0..20).map(|_| daemon.post(&event))).await;
    assert!(answers.iter().all(|a| (a.status, &a.text) == (202, &answers[0].text)), "{answers:?}");
    daemon.wait_for_state(&answers[0].id(), "dispatched").await;
    daemon.audit_closes().await;
    assert_eq!(sends(&oracle), 1);
    assert_eq!(daemon.stop().await, Some(0));
}

#[tokio::test]
async fn connections_that_are_cut_again_and_again_lose_nothing_and_repeat_nothing() {
    let (oracle, database, daemon) = daemon_on_postgres().await;
    let events: Vec<Value> = (0..40).map(|n| event(&format!("pg-c-{n}"))).collect();
    let cuts = async {
        for _ in 0..10 {
            database.cut().await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    };
    let posts = futures_util::future::join_all(events.iter().map(|event| persist(&daemon, event)));
    let (ids, ()) = tokio::join!(posts, cuts);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), events.len());
    for id in &ids {
        daemon.wait_for_state(id, "dispatched").await;
    }
    daemon.audit_closes().await;
    assert_eq!(sends(&oracle), events.len());
}
