//! Every pair of state and fact, legal and illegal, in one table.

use sendonce::domain::lifecycle::{Fact, Illegal, Life, Marks, Outlook, Sent, State, step};

const ROOM: Outlook = Outlook { in_time: true, another_address: true, max_attempts: 5 };

/// A life that is typical of its state: the second attempt is the one under way, open or sent.
fn life_in(state: State) -> Life {
    let begun = Life { state, attempt: 2, used: 2, ..Life::NEW };
    match state {
        State::Accepted => Life::NEW,
        State::Dispatching => Life { sent: Sent::Unknown, ..begun },
        State::DispatchUnknown => Life { sent: Sent::Unknown, open: Some(2), ..begun },
        State::Dispatched => Life { sent: Sent::Yes, sent_attempt: Some(2), ..begun },
        State::Expired => Life { sent: Sent::Unknown, open: Some(2), ..begun },
        State::RetryWait | State::Failed | State::Cancelled | State::Superseded => begun,
    }
}

const FACTS: [Fact; 16] = [
    Fact::Claimed,
    Fact::TimeOver,
    Fact::CancelAsked,
    Fact::NewerEvent,
    Fact::NeverBegan,
    Fact::Accepted,
    Fact::NotSent,
    Fact::RefusedAccount,
    Fact::RefusedMessage,
    Fact::Lost,
    Fact::EvidenceSent(2),
    Fact::EvidenceNotSent(2),
    Fact::ProbeBegun,
    Fact::ProbeEnded,
    Fact::Abandoned,
    Fact::Restored,
];

/// The row of a state: where each of [`FACTS`] leads, `-` for illegal.
#[rustfmt::skip]
const TABLE: [(State, [&str; 16]); 9] = [
    //                        claimed       time_over cancel            newer             never_began  accepted     not_sent     ref.account  ref.message  lost               sent         not_sent     probe_begun        probe_ended abandoned restored
    (State::Accepted,        ["dispatching", "expired", "cancelled",        "superseded",       "-",          "-",          "-",          "-",          "-",          "-",                "dispatched", "-",          "-",               "-",        "-",      "dispatch_unknown"]),
    (State::RetryWait,       ["dispatching", "expired", "cancelled",        "superseded",       "-",          "-",          "-",          "-",          "-",          "-",                "dispatched", "-",          "-",               "-",        "-",      "dispatch_unknown"]),
    (State::Dispatching,     ["-",           "-",       "dispatching",      "dispatching",      "retry_wait", "dispatched", "retry_wait", "retry_wait", "retry_wait", "dispatch_unknown", "dispatched", "-",          "-",               "-",        "-",      "dispatch_unknown"]),
    (State::DispatchUnknown, ["-",           "expired", "dispatch_unknown", "dispatch_unknown", "-",          "-",          "-",          "-",          "-",          "-",                "dispatched", "retry_wait", "dispatch_unknown", "-",       "failed", "dispatch_unknown"]),
    (State::Dispatched,      ["-",           "-",       "-",                "-",                "-",          "-",          "-",          "-",          "-",          "-",                "dispatched", "-",          "-",               "-",        "-",      "-"]),
    (State::Failed,          ["-",           "-",       "-",                "-",                "-",          "-",          "-",          "-",          "-",          "-",                "failed",     "-",          "-",               "-",        "-",      "-"]),
    (State::Expired,         ["-",           "-",       "-",                "-",                "-",          "-",          "-",          "-",          "-",          "-",                "expired",    "expired",    "-",               "-",        "-",      "-"]),
    (State::Cancelled,       ["-",           "-",       "-",                "-",                "-",          "-",          "-",          "-",          "-",          "-",                "cancelled",  "-",          "-",               "-",        "-",      "-"]),
    (State::Superseded,      ["-",           "-",       "-",                "-",                "-",          "-",          "-",          "-",          "-",          "-",                "superseded", "-",          "-",               "-",        "-",      "-"]),
];

#[test]
fn every_fact_in_every_state_leads_where_the_table_says() {
    assert_eq!(TABLE.len(), State::ALL.len());
    for (state, row) in TABLE {
        for (fact, expected) in FACTS.into_iter().zip(row) {
            let got = step(&life_in(state), fact, ROOM);
            match expected {
                "-" => assert_eq!(got, Err(Illegal { state, fact }), "{fact:?} in {state}"),
                to => assert_eq!(got.map(|s| s.life.state.code()), Ok(to), "{fact:?} in {state}"),
            }
        }
    }
}

#[test]
fn no_attempt_follows_while_one_is_open() {
    let open = life_in(State::DispatchUnknown);
    for fact in FACTS {
        if let Ok(after) = step(&open, fact, ROOM) {
            let closed = matches!(fact, Fact::EvidenceNotSent(2));
            assert!(closed || after.life.state != State::RetryWait, "{fact:?} resends an open attempt");
            assert!(after.life.state != State::Dispatching, "{fact:?} begins beside an open attempt");
        }
    }
    assert!(step(&open, Fact::EvidenceNotSent(1), ROOM).is_err(), "evidence about another attempt closes nothing");
}

#[test]
fn where_another_attempt_would_follow_marks_the_maximum_and_the_clock_end_it() {
    let late = Outlook { in_time: false, ..ROOM };
    let used_up = Outlook { max_attempts: 2, ..ROOM };
    let cancel = Marks { cancel: true, supersede: false };
    let supersede = Marks { cancel: false, supersede: true };
    let rows = [
        (Marks::default(), ROOM, State::RetryWait),
        (Marks::default(), late, State::Expired),
        (Marks::default(), used_up, State::Failed),
        (cancel, ROOM, State::Cancelled),
        (supersede, ROOM, State::Superseded),
        (cancel, late, State::Cancelled),
    ];
    for (state, fact) in [(State::Dispatching, Fact::NotSent), (State::DispatchUnknown, Fact::EvidenceNotSent(2))] {
        for (marks, outlook, expected) in rows {
            let life = Life { marks, ..life_in(state) };
            assert_eq!(
                step(&life, fact, outlook).map(|s| s.life.state),
                Ok(expected),
                "{fact:?} {marks:?} {outlook:?}"
            );
        }
    }
}

#[test]
fn an_account_fault_or_an_attempt_that_never_began_uses_up_nothing() {
    let last = Outlook { max_attempts: 2, ..ROOM };
    for fact in [Fact::RefusedAccount, Fact::NeverBegan] {
        let after = step(&life_in(State::Dispatching), fact, last).expect("legal").life;
        assert_eq!((after.state, after.used, after.attempt), (State::RetryWait, 1, 2), "{fact:?}");
    }
}

#[test]
fn a_refused_address_without_another_one_fails() {
    let outlook = Outlook { another_address: false, ..ROOM };
    let after = step(&life_in(State::Dispatching), Fact::RefusedMessage, outlook).expect("legal").life;
    assert_eq!((after.state, after.sent), (State::Failed, Sent::No));
}

#[test]
fn late_evidence_changes_what_is_known_and_never_a_final_state() {
    for state in State::ALL.iter().copied().filter(|s| s.is_final()) {
        let after = step(&life_in(state), Fact::EvidenceSent(2), ROOM).expect("evidence always counts").life;
        assert_eq!((after.state, after.sent, after.open), (state, Sent::Yes, None), "{state}");
    }
    let expired = step(&life_in(State::Expired), Fact::EvidenceNotSent(2), ROOM).expect("legal").life;
    assert_eq!((expired.state, expired.sent, expired.is_over()), (State::Expired, Sent::No, true));
}

#[test]
fn evidence_of_an_attempt_that_a_lost_copy_made_takes_its_number() {
    let after = step(&life_in(State::RetryWait), Fact::EvidenceSent(4), ROOM).expect("evidence always counts").life;
    assert_eq!((after.state, after.attempt, after.sent_attempt), (State::Dispatched, 4, Some(4)));
    let after = step(&life_in(State::RetryWait), Fact::EvidenceSent(1), ROOM).expect("evidence always counts").life;
    assert_eq!((after.attempt, after.sent_attempt), (2, Some(1)), "of an older one it stays");
}

#[test]
fn what_waits_for_a_worker_is_what_a_worker_may_take() {
    for state in State::ALL {
        let claimed = step(&life_in(*state), Fact::Claimed, ROOM).is_ok();
        assert_eq!(state.is_waiting(), claimed, "{state}");
    }
}

#[test]
fn evidence_of_a_second_sent_attempt_is_a_contradiction() {
    let beside = step(&life_in(State::Dispatching), Fact::EvidenceSent(1), ROOM).expect("legal");
    assert!(beside.contradicted, "attempt 1 was sent while attempt 2 is under way");
    let twice = step(&life_in(State::Dispatched), Fact::EvidenceSent(1), ROOM).expect("legal");
    assert!(twice.contradicted, "attempt 1 was sent though attempt 2 was");
    let again = step(&life_in(State::Dispatched), Fact::EvidenceSent(2), ROOM).expect("legal");
    assert!(!again.contradicted, "the same evidence twice");
    let whole = step(&life_in(State::Dispatched), Fact::EvidenceSent(0), ROOM).expect("legal");
    assert!(!whole.contradicted, "evidence for the notification as a whole");
}

#[test]
fn a_probe_is_an_attempt_that_leaves_the_first_one_open() {
    let probing = step(&life_in(State::DispatchUnknown), Fact::ProbeBegun, ROOM).expect("legal").life;
    assert_eq!(
        (probing.state, probing.attempt, probing.open, probing.probing),
        (State::DispatchUnknown, 3, Some(2), true)
    );
    assert!(step(&probing, Fact::ProbeBegun, ROOM).is_err(), "one probe at a time");
    let ended = step(&probing, Fact::ProbeEnded, ROOM).expect("legal").life;
    assert_eq!((ended.state, ended.open, ended.probing), (State::DispatchUnknown, Some(2), false));
    let unbegun = step(&probing, Fact::ProbeNeverBegan, ROOM).expect("legal").life;
    assert_eq!((unbegun.used, unbegun.probing), (2, false), "a probe that never began uses up nothing");
    let sent = step(&ended, Fact::EvidenceSent(3), ROOM).expect("legal");
    assert!(!sent.contradicted, "to a provider that dedupes, the probe and the open attempt are one message");
}

#[test]
fn attempt_numbers_run_out_instead_of_starting_again() {
    let worn = Life { attempt: u8::MAX, ..life_in(State::RetryWait) };
    assert!(step(&worn, Fact::Claimed, ROOM).is_err());
}
