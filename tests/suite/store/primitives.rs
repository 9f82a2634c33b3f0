//! The write primitives.

use super::*;

on_both! {
    a_notification_reads_back_as_it_was_written_and_changed,
    work_reads_back_as_it_was_written_and_changed,
    a_batch_is_not_written_when_work_in_it_has_moved_on,
    a_batch_writes_all_that_it_changes_at_once,
    due_work_says_whether_there_is_newer_work_of_the_same_person,
    due_work_comes_in_order_and_only_from_its_queue,
    of_twenty_inserts_of_one_event_at_once_exactly_one_is_stored,
    key_and_event_are_each_unique_within_a_tenant_even_inside_one_batch,
    a_transaction_that_is_dropped_leaves_nothing,
    a_statement_that_fails_takes_the_whole_transaction_with_it,
    a_reader_sees_every_commit_that_was_acknowledged,
    sealed_values_of_any_length_stay_with_their_rows,
}

async fn a_notification_reads_back_as_it_was_written_and_changed(bed: Bed) {
    admit(bed.store.as_ref(), 0..3).await;
    let mut tx = bed.begin().await;
    assert!(bed.is_its_now(tx.now()));
    assert_eq!(debug(tx.notifications(&[id(1), id(99)]).await), debug(Ok::<_, StoreError>(vec![notification(1)])));

    let outcome = NotificationOutcome {
        state: State::Dispatched,
        sent: Sent::Yes,
        attempt: 3,
        sent_attempt: Some(2),
        open_attempt: Some(1),
        channel: Some(Channel::Email),
        delivery: DeliveryFacts { delivered: u32::MAX, undelivered: 5, parts: 32 },
        provider: Some(provider("mailer")),
        message_id: Some(message("<a@b>")),
        receipt_key: Some(message("<a@b>")),
        finished_at: Some(NOW),
    };
    let updates = [1, 77].map(|n| NotificationUpdate { id: id(n), outcome: outcome.clone() });
    tx.write(&outcomes(updates)).await.expect("updates");
    let changed = NotificationRow { outcome, ..notification(1) };
    assert_eq!(debug(tx.notifications(&[id(1)]).await), debug(Ok::<_, StoreError>(vec![changed])));
    assert_eq!(debug(tx.notifications(&[id(2)]).await), debug(Ok::<_, StoreError>(vec![notification(2)])));
    let found = tx.by_receipt_key(&[(provider("mailer"), message("<a@b>")), (provider("x"), message("<a@b>"))]).await;
    assert_eq!(found, Ok(vec![(provider("mailer"), message("<a@b>"), id(1))]));

    tx.delete_notifications(&[id(2)]).await.expect("deletes");
    assert_eq!(tx.notifications(&[id(2)]).await.expect("reads").len(), 0);
}

async fn work_reads_back_as_it_was_written_and_changed(bed: Bed) {
    admit(bed.store.as_ref(), 0..2).await;
    let mut tx = bed.begin().await;
    assert_eq!(debug(tx.work(&[id(0)]).await), debug(Ok::<_, StoreError>(vec![work(0)])));

    let state = WorkState {
        life: Life {
            state: State::DispatchUnknown,
            sent: Sent::Unknown,
            attempt: 3,
            used: 2,
            open: Some(3),
            sent_attempt: None,
            probing: true,
            marks: Marks { cancel: true, supersede: true },
        },
        queue: Some(Queue::Ask(provider("other"))),
        due_at: NOW,
        leg: 1,
        provider: provider("other"),
        tries_here: 4,
        owner: Some(owner("boot \"1\"")),
        asked: Some(Asked {
            attempt: 0,
            account: [8; 16],
            rev: [9; 16],
            first_there_at: NOW,
            ended_at: Some(NOW),
            cause: Some(Reason::LostAnswer),
            misses: 2,
            asks: 300,
        }),
    };
    let update = WorkUpdate { id: id(0), was_state: State::Accepted, was_attempt: 0, state, wipe_message: true };
    tx.write(&changed([update.clone()])).await.expect("updates");
    let row = WorkRow { state: update.state, sealed_message: None, ..work(0) };
    assert_eq!(debug(tx.work(&[id(0)]).await), debug(Ok::<_, StoreError>(vec![row])));
    assert_eq!(debug(tx.work(&[id(1)]).await), debug(Ok::<_, StoreError>(vec![work(1)])));
    assert_eq!(tx.work_of_users(&[hash(1001), hash(5)]).await, Ok(vec![(hash(1001), id(1), NOW)]));
    tx.write(&over([0])).await.expect("deletes");
    assert_eq!(tx.work(&[id(0), id(1)]).await.expect("reads").len(), 1);
}

async fn a_batch_is_not_written_when_work_in_it_has_moved_on(bed: Bed) {
    admit(bed.store.as_ref(), 0..2).await;
    let good = || update(1, State::Accepted, 0, 1);
    for stale in [update(0, State::RetryWait, 0, 1), update(0, State::Accepted, 1, 2)] {
        let mut tx = bed.begin().await;
        assert_eq!(tx.write(&changed([stale, good()])).await, Err(StoreError::Conflict));
        assert_eq!(tx.commit().await, Err(StoreError::Conflict));
    }
    let mut tx = bed.begin().await;
    let rows = tx.work(&[id(0), id(1)]).await.expect("reads");
    assert!(rows.iter().all(|row| row.state.life == Life::NEW));
    tx.write(&changed([good()])).await.expect("updates");
    assert_eq!(tx.write(&changed([good()])).await, Err(StoreError::Conflict), "a second time");
}

async fn a_batch_writes_all_that_it_changes_at_once(bed: Bed) {
    admit(bed.store.as_ref(), 0..3).await;
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(3)]).await.expect("inserts");
    let outcome = NotificationOutcome { state: State::Failed, finished_at: Some(NOW), ..NotificationOutcome::NEW };
    let record =
        Record::new(NOW, tenant("acme"), What::Accepted, Actor::Daemon(sendonce::domain::audit::DaemonPart::Admission));
    let all = Changes {
        new: vec![work(3)],
        changed: vec![update(1, State::Accepted, 0, 1)],
        over: vec![id(0)],
        outcomes: vec![NotificationUpdate { id: id(0), outcome }],
        records: vec![record.clone(), record],
    };
    tx.write(&all).await.expect("writes");
    tx.commit().await.expect("commits");
    let reader = bed.reader();
    assert_eq!(reader.live(None, 9).await, Ok(vec![id(1), id(2), id(3)]));
    assert_eq!(reader.stranded("next boot", 9).await, Ok(vec![(id(1), "boot".to_owned())]));
    let counts = reader.account_counts(None).await.expect("reads");
    assert_eq!((counts.notifications, counts.finished), (4, 1));
    assert_eq!(reader.log_page(&LogFilter::default(), 0, 9).await.expect("reads").len(), 2);
}

async fn due_work_says_whether_there_is_newer_work_of_the_same_person(bed: Bed) {
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(0), notification(1), notification(2)]).await.expect("inserts");
    let of_one = |n, at: u64| WorkRow { user: hash(5), ordered_at: NOW.plus(Duration::from_secs(at)), ..work(n) };
    tx.write(&new([of_one(0, 2), of_one(1, 1), work(2)])).await.expect("inserts");
    let due = tx.due(&Queue::Send(provider("sandbox")), NOW.plus(Duration::from_secs(1)), 9).await.expect("reads");
    let told: Vec<_> = due.iter().map(|due| (due.work.id, due.overtaken)).collect();
    assert_eq!(told, [(id(0), false), (id(1), true), (id(2), false)]);
}

async fn due_work_comes_in_order_and_only_from_its_queue(bed: Bed) {
    admit(bed.store.as_ref(), 0..5).await;
    let queue = Queue::Send(provider("sandbox"));
    let mut tx = bed.begin().await;
    tx.write(&changed([update(1, State::Accepted, 0, 1)])).await.expect("updates");
    let due = async |tx: &mut Box<dyn Transaction>, queue: &Queue, after: u64, limit| {
        let rows = tx.due(queue, NOW.plus(Duration::from_micros(after)), limit).await.expect("reads");
        rows.iter().map(|row| row.work.id).collect::<Vec<_>>()
    };
    assert_eq!(due(&mut tx, &queue, 3, 10).await, [id(0), id(2), id(3)]);
    assert_eq!(due(&mut tx, &queue, 9, 2).await, [id(0), id(2)]);
    assert_eq!(due(&mut tx, &Queue::Ask(provider("sandbox")), 9, 9).await, []);
    tx.commit().await.expect("commits");
    assert_eq!(bed.reader().next_due(&queue).await, Ok(Some(NOW)));
    assert_eq!(bed.reader().next_due(&Queue::Send(provider("none"))).await, Ok(None));
}

async fn of_twenty_inserts_of_one_event_at_once_exactly_one_is_stored(bed: Bed) {
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let store = bed.store.clone();
            tokio::spawn(async move {
                let mut tx = begin(store.as_ref()).await;
                let row = NotificationRow { id: id(n), ..notification(0) };
                let inserted = tx.insert_notifications(&[row]).await.expect("inserts");
                tx.commit().await.expect("commits");
                inserted
            })
        })
        .collect();
    let mut inserted = vec![];
    for task in tasks {
        inserted.extend(task.await.expect("ends"));
    }
    assert_eq!(inserted.len(), 1);
    let known = bed.reader().known(&tenant("acme"), hash(0), hash(0)).await.expect("reads");
    assert_eq!(known.iter().map(|row| row.id).collect::<Vec<_>>(), inserted);
}

async fn key_and_event_are_each_unique_within_a_tenant_even_inside_one_batch(bed: Bed) {
    let mut tx = bed.begin().await;
    let same_key = NotificationRow { key: hash(0), ..notification(1) };
    let same_event = NotificationRow { event: hash(0), event_id: event(0), ..notification(2) };
    let other_tenant = NotificationRow { tenant: tenant("other"), id: id(3), ..notification(0) };
    let batch = [notification(0), same_key, same_event, other_tenant];
    assert_eq!(tx.insert_notifications(&batch).await, Ok([id(0), id(3)].into()));

    let wanted = [(tenant("acme"), hash(0), hash(50)), (tenant("acme"), hash(60), hash(0))];
    let expected = Known {
        id: id(0),
        tenant: tenant("acme"),
        key: hash(0),
        event: hash(0),
        event_id: event(0),
        fingerprint: [7; 33],
        expires_at: notification(0).expires_at,
    };
    assert_eq!(tx.known(&wanted).await, Ok(vec![expected]));
    assert_eq!(tx.known(&[(tenant("none"), hash(0), hash(0))]).await, Ok(vec![]));
}

async fn a_transaction_that_is_dropped_leaves_nothing(bed: Bed) {
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(0)]).await.expect("inserts");
    drop(tx);
    let mut tx = bed.begin().await;
    assert_eq!(tx.notifications(&[id(0)]).await.expect("reads").len(), 0);
    tx.insert_notifications(&[notification(1)]).await.expect("inserts");
    tx.commit().await.expect("commits");
    assert_eq!(bed.reader().account_counts(None).await.expect("reads").notifications, 1);
}

async fn a_statement_that_fails_takes_the_whole_transaction_with_it(bed: Bed) {
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(0)]).await.expect("inserts");
    let twice = tx.write(&new([work(0), work(0)])).await;
    assert_eq!(twice, Err(StoreError::Refused("constraint")));
    assert_eq!(tx.insert_notifications(&[notification(1)]).await, Err(StoreError::Refused("constraint")));
    assert_eq!(tx.commit().await, Err(StoreError::Refused("constraint")));
    assert_eq!(bed.reader().account_counts(None).await.expect("reads").notifications, 0);
    admit(bed.store.as_ref(), 0..1).await;
}

async fn a_reader_sees_every_commit_that_was_acknowledged(bed: Bed) {
    for n in 0..50 {
        admit(bed.store.as_ref(), n..n + 1).await;
        let status = bed.reader().status(&tenant("acme"), &StatusSelector::Id(id(n))).await.expect("reads");
        assert!(status.is_some(), "{n}");
    }
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(99)]).await.expect("inserts");
    let unseen = bed.reader().status(&tenant("acme"), &StatusSelector::Id(id(99))).await.expect("reads");
    assert!(unseen.is_none(), "not committed");
}

async fn sealed_values_of_any_length_stay_with_their_rows(bed: Bed) {
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(0), notification(1), notification(2)]).await.expect("inserts");
    let rows = [
        WorkRow { sealed_to: vec![], sealed_message: None, ..work(0) },
        WorkRow { sealed_to: vec![0; 5000], sealed_message: Some(vec![]), ..work(1) },
        WorkRow { sealed_to: vec![9], sealed_message: Some((0..=255).collect()), ..work(2) },
    ];
    let (first, rest) = rows.split_at(1);
    tx.write(&new(first.to_vec())).await.expect("inserts nothing sealed");
    tx.write(&new(rest.to_vec())).await.expect("inserts");
    assert_eq!(debug(tx.work(&[0, 1, 2].map(id)).await), debug(Ok::<_, StoreError>(rows)));
}
