//! The log, the small tables, and what the reader tells.

use sendonce::domain::ids::{BootId, NodeName};
use sendonce::store::nodes::Enrolled;

use super::*;

on_both! {
    records_read_back_whole_and_in_the_order_of_writing,
    the_log_is_read_by_pages_and_filters,
    status_is_found_by_id_event_and_key_and_only_by_its_tenant,
    expired_and_stranded_work_is_found,
    unknowns_are_listed_by_page_and_filter,
    the_accounting_closes_or_names_what_is_missing,
    quotas_are_kept_replaced_and_swept,
    kept_receipts_are_taken_once_and_bounded_by_age_and_number,
    only_old_finished_notifications_without_work_are_forgotten,
}

fn record(n: u32, what: What) -> Record {
    let mut record = Record::new(NOW.plus(Duration::from_secs(n.into())), tenant("acme"), what, actor());
    record.notification = Some(id(n));
    record
}

fn actor() -> Actor {
    Actor::Daemon(sendonce::domain::audit::DaemonPart::Admission)
}

async fn append(bed: &Bed, records: &[Record]) {
    let mut tx = bed.begin().await;
    tx.write(&log(records.to_vec())).await.expect("appends");
    tx.commit().await.expect("commits");
}

async fn records_read_back_whole_and_in_the_order_of_writing(bed: Bed) {
    let full = Record {
        notification: Some(id(7)),
        event_id: Some(event(7)),
        from: Some(State::Dispatching),
        to: Some(State::Dispatched),
        sent: Some(Sent::Yes),
        delivery: Some(Delivery::Delivered),
        attempt: Some(255),
        provider: Some(provider("mailer")),
        message_id: Some(message("m1")),
        outcome: Some(OutcomeClass::Accepted),
        reason: Some(Reason::Ok),
        source: Some(Source::Receipt),
        address: Some(hash(9)),
        ticket: Some(Ticket::parse("OPS-1").expect("a ticket")),
        ..Record::new(NOW, tenant("acme"), What::AttemptEnded, Actor::Provider(provider("mailer")))
    };
    let by_key = Actor::Key(ActorName::parse("k1").expect("a name"));
    let bare = Record::new(NOW.minus(Duration::from_secs(9)), tenant("other"), What::Exported, by_key);
    let mut records = vec![full, bare];
    records.extend((0..300).map(|n| record(n, What::Accepted)));
    append(&bed, &records).await;
    let rows = bed.reader().log_page(&LogFilter::default(), 0, 1000).await.expect("reads");
    let read: Vec<String> = rows.iter().map(|row| debug(&row.record)).collect();
    assert_eq!(read, records.iter().map(debug).collect::<Vec<_>>());
    assert!(rows.is_sorted_by(|a, b| a.pos < b.pos));
    let mark = bed.reader().high_water().await.expect("reads");
    assert_eq!((mark.pos, mark.at), (302, NOW.plus(Duration::from_secs(299))));
    assert_eq!(bed.begin().await.high_water().await, Ok(mark));
}

async fn the_log_is_read_by_pages_and_filters(bed: Bed) {
    let mut records: Vec<_> = (0..10).map(|n| record(n, What::Accepted)).collect();
    records[3].what = What::Expired;
    records[4].tenant = tenant("other");
    records[5].event_id = Some(event(5));
    records[6].notification = Some(id(2));
    append(&bed, &records).await;
    let all = LogFilter::default;
    let at = |n| Some(NOW.plus(Duration::from_secs(n)));
    let cases = [
        (all(), (1..=10).collect::<Vec<i64>>()),
        (LogFilter { what: Some(What::Expired), ..all() }, vec![4]),
        (LogFilter { tenant: Some(tenant("other")), ..all() }, vec![5]),
        (LogFilter { event_id: Some(event(5)), ..all() }, vec![6]),
        (LogFilter { notification: Some(id(2)), ..all() }, vec![3, 7]),
        (LogFilter { notification: Some(id(2)), what: Some(What::Expired), ..all() }, vec![]),
        (LogFilter { from: at(2), to: at(4), ..all() }, vec![3, 4]),
    ];
    for (filter, expected) in cases {
        let mut found = vec![];
        loop {
            let page = bed.reader().log_page(&filter, found.last().copied().unwrap_or(0), 3).await.expect("reads");
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 3);
            found.extend(page.iter().map(|row| row.pos));
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

async fn status_is_found_by_id_event_and_key_and_only_by_its_tenant(bed: Bed) {
    admit(bed.store.as_ref(), 0..2).await;
    append(&bed, &[record(0, What::Accepted), record(1, What::Accepted), record(0, What::Expired)]).await;
    for selector in [StatusSelector::Id(id(0)), StatusSelector::Event(hash(0)), StatusSelector::Key(hash(0))] {
        let status = bed.reader().status(&tenant("acme"), &selector).await.expect("reads").expect("is there");
        assert_eq!(debug(status.notification), debug(notification(0)));
        assert_eq!(debug(status.work), debug(Some(work(0).state)));
        assert_eq!(status.log.iter().map(|row| row.pos).collect::<Vec<_>>(), [1, 3]);
        assert!(bed.reader().status(&tenant("other"), &selector).await.expect("reads").is_none());
    }
    let mut tx = bed.begin().await;
    tx.write(&over([0])).await.expect("deletes");
    tx.commit().await.expect("commits");
    let status = bed.reader().status(&tenant("acme"), &StatusSelector::Id(id(0))).await.expect("reads");
    assert!(status.expect("is there").work.is_none());
}

async fn expired_and_stranded_work_is_found(bed: Bed) {
    admit(bed.store.as_ref(), 0..4).await;
    let mut tx = bed.begin().await;
    tx.write(&changed([update(1, State::Accepted, 0, 1)])).await.expect("updates");
    tx.commit().await.expect("commits");
    let reader = bed.reader();
    let expiry = work(0).expires_at;
    assert_eq!(reader.expired(expiry.minus(Duration::from_micros(1)), 9).await, Ok(vec![]));
    assert_eq!(
        reader.expired(expiry, 9).await,
        Ok(vec![id(0), id(2), id(3)]),
        "what is dispatching is not expired here"
    );
    assert_eq!(reader.expired(expiry, 1).await, Ok(vec![id(0)]));
    assert_eq!(reader.stranded("boot", 9).await, Ok(vec![]));
    assert_eq!(reader.stranded("next boot", 9).await, Ok(vec![(id(1), "boot".to_owned())]));
    let (name, lease) = (NodeName::parse("n1").expect("a name"), Duration::from_secs(15));
    let boot = BootId::parse("boot").expect("an id");
    assert!(matches!(bed.store.nodes().enrol(&name, &boot, lease).await, Ok(Enrolled::Taken { .. })));
    assert_eq!(reader.stranded("next boot", 9).await, Ok(vec![]), "its owner is enrolled");
    bed.store.nodes().release(&name, &boot).await.expect("releases");
    assert_eq!(reader.stranded("next boot", 9).await.expect("reads").len(), 1);
    assert_eq!(reader.live(Some(id(1)), 9).await, Ok(vec![id(2), id(3)]));
    let counts = reader.work_counts().await.expect("reads");
    let mut counts: Vec<_> = counts.iter().map(|c| (c.state, c.count, c.oldest_due)).collect();
    counts.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    assert_eq!(counts, [(State::Accepted, 3, NOW), (State::Dispatching, 1, work(1).state.due_at)]);
}

async fn unknowns_are_listed_by_page_and_filter(bed: Bed) {
    admit(bed.store.as_ref(), 0..4).await;
    let unknown = |n: u32, cause, ended: u64| {
        let mut update = update(n, State::Accepted, 0, 1);
        update.state.life =
            Life { state: State::DispatchUnknown, sent: Sent::Unknown, open: Some(1), ..update.state.life };
        update.state.asked = Some(Asked {
            attempt: 1,
            account: [1; 16],
            rev: [2; 16],
            first_there_at: NOW,
            ended_at: Some(NOW.plus(Duration::from_secs(ended))),
            cause: Some(cause),
            misses: 0,
            asks: 0,
        });
        update
    };
    let updates =
        [unknown(0, Reason::LostAnswer, 1), unknown(1, Reason::ServerFault, 2), unknown(3, Reason::LostAnswer, 3)];
    let mut tx = bed.begin().await;
    tx.write(&changed(updates)).await.expect("updates");
    tx.commit().await.expect("commits");
    let all = || UnknownFilter { limit: 9, ..UnknownFilter::default() };
    let cases = [
        (all(), vec![id(0), id(1), id(3)]),
        (UnknownFilter { limit: 2, ..all() }, vec![id(0), id(1)]),
        (UnknownFilter { after: Some(id(0)), ..all() }, vec![id(1), id(3)]),
        (UnknownFilter { cause: Some(Reason::LostAnswer), ..all() }, vec![id(0), id(3)]),
        (UnknownFilter { before: Some(NOW.plus(Duration::from_secs(2))), ..all() }, vec![id(0)]),
        (UnknownFilter { tenant: Some(tenant("other")), ..all() }, vec![]),
        (UnknownFilter { provider: Some(provider("other")), ..all() }, vec![]),
        (
            UnknownFilter { provider: Some(provider("sandbox")), tenant: Some(tenant("acme")), limit: 1, ..all() },
            vec![id(0)],
        ),
    ];
    for (filter, expected) in cases {
        let rows = bed.reader().unknowns(&filter).await.expect("reads");
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{filter:?}");
        assert!(rows.iter().all(|row| row.mask == notification(0).mask));
    }
}

async fn the_accounting_closes_or_names_what_is_missing(bed: Bed) {
    admit(bed.store.as_ref(), 0..4).await;
    let step = |n, what, from, to| Record { from, to: Some(to), ..record(n, what) };
    let mut tx = bed.begin().await;
    let finish = |n, sent, state| NotificationUpdate {
        id: id(n),
        outcome: NotificationOutcome { state, sent, finished_at: Some(NOW), ..NotificationOutcome::NEW },
    };
    tx.write(&outcomes([finish(0, Sent::Yes, State::Dispatched), finish(1, Sent::No, State::Failed)]))
        .await
        .expect("updates");
    tx.write(&over([0, 1])).await.expect("deletes");
    let mut records: Vec<_> = (0..4).map(|n| step(n, What::Accepted, None, State::Accepted)).collect();
    records.push(step(0, What::AttemptEnded, Some(State::Dispatching), State::Dispatched));
    records.push(step(0, What::Receipt, Some(State::Dispatched), State::Dispatched));
    records.push(step(1, What::AttemptEnded, Some(State::Dispatching), State::Failed));
    tx.write(&log(records)).await.expect("appends");
    tx.commit().await.expect("commits");
    let counts = bed.reader().account_counts(None).await.expect("reads");
    assert_eq!((counts.notifications, counts.finished, counts.live), (4, 2, 2));
    assert_eq!((counts.accepted_records, counts.final_records), (4, 2));
    assert_eq!((counts.sent, counts.not_sent, counts.unknown), (1, 1, 0));
    assert_eq!(bed.reader().account_counts(Some(&tenant("other"))).await, Ok(Default::default()));
    assert_eq!(bed.reader().account_faults(None, 9).await, Ok(vec![]));

    append(&bed, &[step(1, What::Expired, Some(State::RetryWait), State::Expired), record(2, What::Accepted)]).await;
    let fault = |n, accepted_records, final_records, finished| AccountFault {
        id: id(n),
        accepted_records,
        final_records,
        finished,
    };
    let faults = [fault(1, 1, 2, true), fault(2, 2, 0, false)];
    assert_eq!(bed.reader().account_faults(Some(&tenant("acme")), 9).await, Ok(faults.to_vec()));
    assert_eq!(bed.reader().account_faults(None, 1).await, Ok(faults[..1].to_vec()));
}

async fn quotas_are_kept_replaced_and_swept(bed: Bed) {
    let mut tx = bed.begin().await;
    let later = NOW.plus(Duration::from_secs(1));
    tx.save_quotas(&[(hash(1), NOW), (hash(2), NOW)]).await.expect("saves");
    tx.save_quotas(&[(hash(2), later)]).await.expect("saves");
    let mut quotas = tx.quotas(&[hash(1), hash(2), hash(3)]).await.expect("reads");
    quotas.sort();
    assert_eq!(quotas, [(hash(1), NOW), (hash(2), later)]);
    tx.sweep_small(NOW, NOW, 10, 10).await.expect("sweeps");
    assert_eq!(tx.quotas(&[hash(1), hash(2)]).await, Ok(vec![(hash(2), later)]));
}

async fn kept_receipts_are_taken_once_and_bounded_by_age_and_number(bed: Bed) {
    let receipt = |id: &str, status| Receipt {
        provider: provider("sms"),
        reference: None,
        message_id: Some(message(id)),
        status,
        part: Part { index: 1, of: 2 },
    };
    let nameless = Receipt { message_id: None, ..receipt("x", ReceiptStatus::Progress) };
    let (first, second) = (receipt("a", ReceiptStatus::Progress), receipt("a", ReceiptStatus::Delivered));
    let other = receipt("b", ReceiptStatus::Delivered);
    let mut tx = bed.begin().await;
    let batch = [first.clone(), nameless, other, second.clone(), first.clone()];
    tx.keep_receipts(&batch, NOW).await.expect("keeps");
    let wanted = [(provider("sms"), message("a")), (provider("other"), message("b"))];
    assert_eq!(tx.take_receipts(&wanted).await, Ok(vec![first, second]));
    assert_eq!(tx.take_receipts(&wanted).await, Ok(vec![]));

    let later = NOW.plus(Duration::from_secs(1));
    let rest: Vec<_> = ["c", "d", "e"].map(|id| receipt(id, ReceiptStatus::Delivered)).into();
    tx.keep_receipts(&rest, later).await.expect("keeps");
    tx.sweep_small(NOW, later, 2, 10).await.expect("sweeps");
    let wanted = ["b", "c", "d", "e"].map(|id| (provider("sms"), message(id)));
    assert_eq!(tx.take_receipts(&wanted).await, Ok(rest[1..].to_vec()), "b was too old, c one too many");
}

async fn only_old_finished_notifications_without_work_are_forgotten(bed: Bed) {
    admit(bed.store.as_ref(), 0..5).await;
    let mut tx = bed.begin().await;
    let outcome = NotificationOutcome { state: State::Failed, finished_at: Some(NOW), ..NotificationOutcome::NEW };
    let finished = [0, 1, 2, 4].map(|n| NotificationUpdate { id: id(n), outcome: outcome.clone() });
    tx.write(&outcomes(finished)).await.expect("updates");
    tx.write(&over([0, 2, 4])).await.expect("deletes");
    let before = NOW.plus(Duration::from_millis(4));
    assert_eq!(tx.forget_notifications(before, 1).await, Ok(1));
    assert_eq!(tx.forget_notifications(before, 9).await, Ok(1));
    let kept = tx.notifications(&[0, 1, 2, 3, 4].map(id)).await.expect("reads");
    assert_eq!(kept.iter().map(|row| row.id).collect::<Vec<_>>(), [id(1), id(3), id(4)]);
}
