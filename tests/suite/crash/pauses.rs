//! The process is stopped between the record of an attempt and the octet that commits, and goes on when it may not any
//! more.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use super::vendor::{Kind, Play, Vendor};
use crate::support::daemon::{Daemon, Place, Plan, event_to, wait};
use crate::support::smtp_oracle::{Act, Stage};

/// Longer than an attempt may take to begin, than a node may be silent, and than a short event lives.
const PAUSE: Duration = Duration::from_secs(4);

fn event(kind: Kind, expires_in: u64) -> Value {
    let to = json!([{ kind.channel(): kind.address(1) }]);
    let mut event = event_to("paused", to, json!({ "code": "493021" }));
    event["expires_in"] = expires_in.into();
    event
}

/// A plan by which an attempt must begin within a second of its claim.
fn hasty(place: &Place) -> Plan {
    match place {
        Place::File => Plan::new().section("dispatch", "start_by = \"1s\""),
        // There it is so already.
        Place::Server(_) => Plan::new(),
    }
}

fn first_attempt(status: &Value) -> (&Value, &Value) {
    (&status["attempts"][0]["outcome"], &status["attempts"][0]["reason"])
}

/// The daemon is stopped after DATA, and the relay says 354 meanwhile.
async fn stopped_before_the_dot(place: Place, plan: Plan, expires_in: u64) -> (Vendor, Daemon, String) {
    let vendor = Vendor::start(None).await;
    vendor.relay(Some((Stage::Data, Act::Late(PAUSE / 2, "354 go ahead"))));
    let daemon = Daemon::start(place.plan(vendor.plan(plan))).await;
    let id = daemon.accept(&event(Kind::Relay, expires_in)).await;
    wait("the relay has read DATA", async || vendor.mail.commands().iter().any(|verb| verb == "DATA")).await;
    daemon.sigstop();
    tokio::time::sleep(PAUSE).await;
    daemon.sigcont();
    (vendor, daemon, id)
}

async fn a_late_dot_is_not_written(place: Place) {
    let plan = hasty(&place);
    let (vendor, daemon, id) = stopped_before_the_dot(place, plan, 600).await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(first_attempt(&status), (&json!("never_began"), &json!("started_too_late")), "{status}");
    assert_eq!(vendor.copies().values().collect::<Vec<_>>(), [&1], "and then it is sent, once");
    daemon.audit_closes().await;
}

#[tokio::test]
async fn mail_whose_process_was_stopped_before_the_dot_does_not_get_it_when_the_attempt_may_not_begin_any_more() {
    a_late_dot_is_not_written(Place::File).await;
}

#[tokio::test]
async fn on_postgres_too_where_the_lease_has_run_out_meanwhile() {
    a_late_dot_is_not_written(Place::server().await).await;
}

#[tokio::test]
async fn mail_whose_process_was_stopped_before_the_dot_until_it_expired_is_not_sent() {
    let (vendor, daemon, id) = stopped_before_the_dot(Place::File, Plan::new(), 3).await;
    let status = daemon.wait_for_state(&id, "expired").await;
    assert_eq!(first_attempt(&status), (&json!("never_began"), &json!("deadline_passed")), "{status}");
    assert_eq!(status["sent"], "no");
    assert!(vendor.copies().is_empty());
    daemon.audit_closes().await;
}

/// Whether somebody is trying to reach this port: a connection in the state SYN_SENT (proc_pid_net(5)).
fn is_being_called(address: SocketAddr) -> bool {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections of this machine");
    let columns = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns.into_iter().any(|columns| columns[2].ends_with(&port) && columns[3] == "02")
}

/// The daemon is stopped while a provider does not take its connection yet, which it does meanwhile.
async fn a_late_request_is_not_written(place: Place) {
    let vendor = Vendor::start(None).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let door = socket.listen(0).expect("listens");
    let address = door.local_addr().expect("an address");
    // There is room for one who waits at the door, and no more.
    let _waits = TcpStream::connect(address).await.expect("a connection");
    let provider: SocketAddr = vendor.http.url().replace("http://", "").parse().expect("an address");
    let daemon = Daemon::prepare(place.plan(vendor.plan(hasty(&place))));
    daemon.reconfigure(&format!("{}/silent", vendor.http.url()), &format!("http://{address}/silent"));
    daemon.reconfigure("connect_timeout = \"500ms\"\ntimeout = \"1s\"", "connect_timeout = \"20s\"\ntimeout = \"30s\"");
    daemon.launch().await;
    let id = daemon.accept(&event(Kind::Silent, 600)).await;
    wait("the daemon calls", async || is_being_called(address)).await;
    daemon.sigstop();
    let open = tokio::spawn(async move {
        loop {
            let (mut from, _) = door.accept().await.expect("a connection");
            tokio::spawn(async move {
                let mut to = TcpStream::connect(provider).await.expect("a connection");
                // How it ends is for the two of them to tell.
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    tokio::time::sleep(PAUSE).await;
    assert!(vendor.http.requests().is_empty());
    daemon.sigcont();
    let status = daemon.wait_for_state(&id, "dispatched").await;
    assert_eq!(first_attempt(&status), (&json!("never_began"), &json!("started_too_late")), "{status}");
    assert_eq!(vendor.http.requests().len(), 1, "and then it is sent, once");
    daemon.audit_closes().await;
    open.abort();
}

#[tokio::test]
async fn a_request_whose_process_was_stopped_before_its_first_octet_does_not_leave_late() {
    a_late_request_is_not_written(Place::File).await;
}

#[tokio::test]
async fn nor_on_postgres_where_the_lease_has_run_out_meanwhile() {
    a_late_request_is_not_written(Place::server().await).await;
}

#[tokio::test]
async fn an_attempt_whose_claim_was_held_up_in_the_store_for_too_long_does_not_begin() {
    let vendor = Vendor::start(None).await;
    let place = Place::server().await;
    let daemon = Daemon::start(place.plan(vendor.plan(Plan::new()))).await;
    vendor.next(Kind::Silent, Play::BusyFor("2"));
    let id = daemon.accept(&event(Kind::Silent, 600)).await;
    daemon.wait_for_state(&id, "retry_wait").await;
    let held = place.hold(&daemon, "work").await;
    place.a_claim_waits().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    held.release().await;
    let status = daemon.wait_for_state(&id, "dispatched").await;
    let second = &status["attempts"][1];
    assert_eq!(
        (&second["outcome"], &second["reason"]),
        (&json!("never_began"), &json!("started_too_late")),
        "{status}"
    );
    assert_eq!(vendor.http.requests().len(), 2, "a refusal for now, and the message");
    daemon.audit_closes().await;
}
