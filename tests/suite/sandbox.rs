//! The sandbox plays every outcome by the address.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sendonce::domain::address::Address;
use sendonce::domain::content::Channel;
use sendonce::domain::ids::ProviderName;
use sendonce::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use sendonce::domain::receipt::{Receipt, ReceiptStatus};
use sendonce::domain::time::Timestamp;
use sendonce::provider::inbox::{Handed, Inbox};
use sendonce::provider::sandbox::{Sandbox, SandboxPace};
use sendonce::provider::{Inquiry, Provider};
use sendonce::vault::IndexKey;
use tokio::sync::mpsc;

use crate::support::sample::{dispatch, email, index_key, open_gate, sms};

struct Stand {
    index: IndexKey,
    sandbox: Sandbox,
    receipts: mpsc::Receiver<Handed>,
    outbox: PathBuf,
    _dir: tempfile::TempDir,
}

fn build(channel: Channel, outbox: &Path, index: &IndexKey) -> (Sandbox, mpsc::Receiver<Handed>) {
    let (inbox, receipts) = Inbox::new(8);
    let quick = Duration::from_millis(50);
    let pace = SandboxPace { slow: quick, settle_after: quick, receipt_after: quick };
    let name = ProviderName::parse(&format!("sandbox-{}", channel.code())).expect("a name");
    (Sandbox::build(name, channel, outbox, pace, index, inbox).expect("a sandbox"), receipts)
}

impl Stand {
    fn new(channel: Channel) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let outbox = dir.path().join("outbox.jsonl");
        let index = index_key();
        let (sandbox, receipts) = build(channel, &outbox, &index);
        Self { index, sandbox, receipts, outbox, _dir: dir }
    }

    fn restart(&mut self) {
        (self.sandbox, self.receipts) = build(self.sandbox.channel(), &self.outbox, &self.index);
    }

    async fn send(&self, attempt: u8, to: Address) -> Outcome {
        self.sandbox.send(&dispatch(&self.index, 1, attempt, to), &open_gate()).await
    }

    async fn lookup(&self, attempt: u8) -> LookupAnswer {
        let d = dispatch(&self.index, 1, attempt, email("any@example.org"));
        let now = Timestamp::default();
        let inquiry = Inquiry {
            id: d.id,
            reference: d.reference,
            dedupe_key: d.dedupe_key,
            to: None,
            message_id: None,
            began_at: now,
            now,
        };
        self.sandbox.lookup(&inquiry).await
    }

    fn taken(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.outbox).expect("an outbox");
        text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect()
    }

    async fn receipt(&mut self) -> Receipt {
        let waiting = self.receipts.recv();
        let handed = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("a receipt in 10 s");
        handed.expect("a sender").receipt
    }
}

fn ending(outcome: &Outcome) -> (OutcomeClass, Reason) {
    (outcome.class, outcome.reason)
}

const ACCEPTED: (OutcomeClass, Reason) = (OutcomeClass::Accepted, Reason::Ok);
const LOST: (OutcomeClass, Reason) = (OutcomeClass::Unknown, Reason::LostAnswer);
const NOT_NOW: (OutcomeClass, Reason) = (OutcomeClass::NotSent, Reason::TemporarilyRefused);

#[tokio::test]
async fn each_address_plays_its_outcome_attempt_by_attempt_on_both_channels() {
    let refused = (OutcomeClass::RefusedMessage, Reason::BadAddress);
    let account = (OutcomeClass::RefusedAccount, Reason::AccountRefused);
    // digits, local part, outcomes of attempts 1 to 3, messages taken by then
    let table = [
        ("00", "anna", [ACCEPTED; 3], 3),
        ("01", "refused", [refused; 3], 0),
        ("02", "account-refused", [account; 3], 0),
        ("03", "not-sent-twice", [NOT_NOW, NOT_NOW, ACCEPTED], 1),
        ("04", "slow", [ACCEPTED; 3], 3),
        ("05", "lost-sent", [LOST; 3], 3),
        ("06", "lost-not-sent", [LOST, ACCEPTED, ACCEPTED], 2),
        ("07", "lost-silent", [LOST; 3], 3),
        ("08", "delivered", [ACCEPTED; 3], 3),
        ("09", "undelivered", [ACCEPTED; 3], 3),
        ("10", "lost-receipt", [LOST; 3], 3),
    ];
    for (digits, local, outcomes, taken) in table {
        let addresses = [
            (Channel::Sms, sms(&format!("+150055500{digits}"))),
            (Channel::Sms, sms(&format!("+150055577{digits}"))),
            (Channel::Email, email(&format!("{local}@example.org"))),
            (Channel::Email, email(&format!("{local}+bob@example.org"))),
        ];
        for (channel, to) in addresses {
            let stand = Stand::new(channel);
            for (attempt, wanted) in (1..).zip(outcomes) {
                assert_eq!(ending(&stand.send(attempt, to.clone()).await), wanted, "{channel:?} {local} {attempt}");
            }
            assert_eq!(stand.taken().len(), taken, "{channel:?} {local}");
        }
    }
}

#[tokio::test]
async fn what_was_taken_can_be_read_in_the_outbox_by_its_owner_alone() {
    let stand = Stand::new(Channel::Email);
    for _ in 0..2 {
        assert_eq!(ending(&stand.send(1, email("anna@example.org")).await), ACCEPTED);
    }
    let taken = stand.taken();
    assert_eq!(taken[0]["to"], "anna@example.org");
    assert_eq!(taken[0]["provider"], "sandbox-email");
    assert!(taken[0]["text"].as_str().is_some_and(|t| t.contains("493021")));
    assert!(taken[0]["html"].as_str().is_some_and(|t| t.contains("<b>493021</b>")));
    assert_eq!((&taken[0]["copy"], &taken[1]["copy"]), (&1.into(), &2.into()), "a duplicate shows");
    let mode = std::fs::metadata(&stand.outbox).expect("an outbox").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_look_up_finds_what_was_taken_also_after_a_restart() {
    let mut stand = Stand::new(Channel::Email);
    assert_eq!(ending(&stand.send(1, email("lost-sent@example.org")).await), LOST);
    for _ in 0..2 {
        assert!(matches!(stand.lookup(1).await, LookupAnswer::Found { message_id: Some(_), delivery: None }));
        stand.restart();
    }
    assert_eq!(stand.lookup(2).await, LookupAnswer::NotFound);
}

#[tokio::test]
async fn a_look_up_does_not_find_what_was_lost_before_it_was_taken() {
    let mut stand = Stand::new(Channel::Sms);
    assert_eq!(ending(&stand.send(1, sms("+15005550006")).await), LOST);
    assert_eq!(stand.lookup(1).await, LookupAnswer::NotFound);
    stand.restart();
    assert_eq!(stand.lookup(1).await, LookupAnswer::NotFound);
    assert_eq!(ending(&stand.send(2, sms("+15005550006")).await), ACCEPTED);
    assert!(matches!(stand.lookup(2).await, LookupAnswer::Found { .. }));
}

#[tokio::test]
async fn a_silent_provider_never_answers_look_ups_also_after_a_restart() {
    let mut stand = Stand::new(Channel::Sms);
    assert_eq!(ending(&stand.send(1, sms("+15005550007")).await), LOST);
    assert_eq!(stand.lookup(1).await, LookupAnswer::Unreadable);
    stand.restart();
    assert_eq!(stand.lookup(1).await, LookupAnswer::Unreadable);
}

#[tokio::test]
async fn receipts_come_later_and_name_the_attempt() {
    for (local, status) in [
        ("delivered", ReceiptStatus::Delivered),
        ("undelivered", ReceiptStatus::Undelivered),
        ("lost-receipt", ReceiptStatus::Delivered),
    ] {
        let mut stand = Stand::new(Channel::Email);
        stand.send(1, email(&format!("{local}@example.org"))).await;
        let receipt = stand.receipt().await;
        assert_eq!(receipt.status, status, "{local}");
        let d = dispatch(&stand.index, 1, 1, email("any@example.org"));
        assert_eq!(receipt.reference.map(|r| r.to_string()), Some(d.reference), "{local}");
        assert_eq!(receipt.message_id.map(|id| id.to_string()).as_deref(), stand.taken()[0]["message_id"].as_str());
    }
}

#[tokio::test]
async fn a_line_that_a_crash_cut_off_hides_no_other() {
    let mut stand = Stand::new(Channel::Email);
    stand.send(1, email("anna@example.org")).await;
    let mut text = std::fs::read_to_string(&stand.outbox).expect("an outbox");
    text.push_str("{\"at\":\"2026");
    std::fs::write(&stand.outbox, text).expect("an outbox");
    stand.restart();
    stand.send(2, email("anna@example.org")).await;
    stand.restart();
    assert!(matches!(stand.lookup(1).await, LookupAnswer::Found { .. }));
    assert!(matches!(stand.lookup(2).await, LookupAnswer::Found { .. }));
}
