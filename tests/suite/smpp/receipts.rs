//! Receipts over the session: how they read, and when they are acknowledged.

use sendonce::domain::receipt::Part;
use sendonce::provider::smpp::receipt::{IdForm, Reading, read};

use super::*;
use crate::support::smsc_oracle::{Ids, deliver_body, in_receipt, receipt};

const TAKEN: u32 = 0;
const NOT_NOW: u32 = 0x64;
const NEVER: u32 = 0x65;

#[test]
fn a_receipt_reads_by_its_parameters_or_by_its_text() {
    use ReceiptStatus::{Delivered, Progress, Undelivered};
    let words = [
        ("DELIVRD", Delivered),
        ("delivrd", Delivered),
        ("EXPIRED", Undelivered),
        ("DELETED", Undelivered),
        ("UNDELIV", Undelivered),
        ("REJECTD", Undelivered),
        ("ACCEPTD", Progress),
        ("ENROUTE", Progress),
        ("UNKNOWN", Progress),
        ("SOMETHING", Progress),
    ];
    let is = |id: &str, status| Reading::Receipt { id: id.to_owned(), status };
    for (word, status) in words {
        assert_eq!(read(&receipt("0123abc", word)), is("0123abc", status), "{word}");
    }
    let states =
        [Progress, Delivered, Undelivered, Undelivered, Undelivered, Progress, Progress, Undelivered, Progress];
    for (state, status) in (1_u8..).zip(states) {
        let body = deliver_body(4, "", &[(0x1e, b"77\0"), (0x427, &[state])]);
        assert_eq!(read(&body), is("77", status), "{state}");
    }
    for (body, wanted, what) in [
        (deliver_body(4, "id:1 stat:UNDELIV", &[(0x1e, b"2\0"), (0x427, &[2])]), is("2", Delivered), "both"),
        (deliver_body(4, "id:1 stat:DELIVRD", &[(0x1e, b"2")]), is("2", Delivered), "without the final NUL"),
        (deliver_body(4, "", &[(0x427, &[0, 0, 0, 2]), (0x1e, b"2\0")]), is("2", Delivered), "a state of four octets"),
        (deliver_body(4, "", &[(0x424, b"id:5 stat:EXPIRED")]), is("5", Undelivered), "the text as a payload"),
        (deliver_body(4, "ID: 9 Stat: DELIVRD", &[]), is("9", Delivered), "blanks"),
        (deliver_body(4, "id:9 stat:UNDELIV text:id:1 stat:DELIVRD", &[]), is("9", Undelivered), "the message's words"),
        (deliver_body(0, "", &[(0x1e, b"2\0"), (0x427, &[2])]), is("2", Delivered), "no class"),
        (deliver_body(0x20, "id:9 stat:UNDELIV", &[]), is("9", Progress), "an intermediate notification"),
        (deliver_body(0, "id:9 stat:DELIVRD", &[]), Reading::Other, "a phone that writes like an SMSC"),
        (deliver_body(0, "STOP", &[]), Reading::Other, "a phone"),
        (deliver_body(4, "stat:DELIVRD", &[]), Reading::Unreadable, "no id"),
        (deliver_body(4, "id:9", &[]), Reading::Unreadable, "no state"),
        (deliver_body(4, "text:id:9 stat:DELIVRD", &[]), Reading::Unreadable, "nothing but the message's words"),
        (b"\0\x01".to_vec(), Reading::Unreadable, "cut short"),
    ] {
        assert_eq!(read(&body), wanted, "{what}");
    }
}

#[test]
fn an_id_is_one_number_in_whichever_base_it_is_written() {
    use IdForm::{HexInReceipt, HexInResponse, Same};
    for (form, response, receipt) in [
        (Same, "a1B2-c3", "a1B2-c3"),
        (HexInResponse, "EE6B2800", "4000000000"),
        (HexInResponse, "0ee6b2800", "004000000000"),
        (HexInReceipt, "4000000000", "ee6b2800"),
        (HexInReceipt, "4000000000", "00EE6B2800"),
        // What is no number is left as it is.
        (HexInResponse, "x-1", "x-1"),
    ] {
        assert_eq!(form.of_response(response), form.of_receipt(receipt), "{form:?} {response} {receipt}");
    }
    assert_ne!(Same.of_response("10"), Same.of_receipt("16"));
    assert_ne!(HexInResponse.of_response("10"), HexInResponse.of_receipt("10"));
}

#[tokio::test]
async fn a_receipt_names_the_message_that_was_answered_in_every_form_of_ids() {
    for (ids, form) in [
        (Ids::Same, IdForm::Same),
        (Ids::HexInResponse, IdForm::HexInResponse),
        (Ids::HexInReceipt, IdForm::HexInReceipt),
    ] {
        let oracle = SmscOracle::start(Script::plain().ids(ids)).await;
        let mut stand = Stand::new(SmppSettings { message_id: form, ..settings(&oracle) });
        let answered = stand.send(1).await.message_id.expect("an id");
        oracle.say(5, 50, &receipt(&in_receipt(ids, oracle.submitted()[0].number), "DELIVRD"));
        let handed = stand.handed().await;
        assert_eq!(handed.receipt.message_id, Some(answered), "{ids:?}");
        assert_eq!((handed.receipt.status, handed.receipt.part), (ReceiptStatus::Delivered, Part::WHOLE));
        assert_eq!(handed.receipt.reference, None, "SMPP carries none");
    }
}

#[tokio::test]
async fn a_receipt_is_acknowledged_when_it_is_stored_and_asked_for_again_when_it_is_not() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let mut stand = Stand::new(settings(&oracle));
    assert_eq!(stand.ending(1).await, OK);
    oracle.say(5, 60, &receipt("4000000000", "DELIVRD"));
    let handed = stand.handed().await;
    // The session lives on meanwhile.
    assert_eq!(stand.ending(2).await, OK);
    assert_eq!(oracle.acknowledged(60), None, "nobody has stored it yet");
    drop(handed);
    oracle.wait_until("an answer", |o| o.acknowledged(60) == Some(NOT_NOW)).await;
    oracle.say(5, 61, &receipt("4000000000", "DELIVRD"));
    stand.handed().await.stored();
    oracle.wait_until("an answer", |o| o.acknowledged(61) == Some(TAKEN)).await;

    // What nobody here can use is not sent again.
    assert_eq!(oracle.deliver(62, &deliver_body(0, "STOP", &[])).await, TAKEN);
    assert_eq!(oracle.deliver(63, &deliver_body(4, "nothing to read", &[])).await, NEVER);
    assert_eq!(oracle.deliver(64, b"\0").await, NEVER);
    // More than may wait are asked for again; none is lost.
    for sequence in 100..164 {
        oracle.say(5, sequence, &receipt("4000000000", "DELIVRD"));
    }
    assert_eq!(oracle.deliver(164, &receipt("4000000000", "DELIVRD")).await, NOT_NOW);
    for _ in 0..64 {
        stand.handed().await.stored();
    }
    oracle.wait_until("all answers", |o| (100..164).all(|s| o.acknowledged(s) == Some(TAKEN))).await;
    assert_eq!(oracle.connections(), 1);
}

#[tokio::test]
async fn without_anybody_to_store_receipts_the_smsc_keeps_them() {
    let oracle = SmscOracle::start(Script::plain()).await;
    let mut stand = Stand::new(settings(&oracle));
    assert_eq!(stand.ending(1).await, OK);
    stand.inbox.close();
    assert_eq!(oracle.deliver(70, &receipt("4000000000", "DELIVRD")).await, NOT_NOW);
    assert_eq!(stand.ending(2).await, OK);
}
