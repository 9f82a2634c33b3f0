//! What is kept of callbacks, on both backends.

use sendonce::domain::audit::DaemonPart;
use sendonce::domain::callback::{Before, Change};
use sendonce::domain::ids::TargetName;
use sendonce::store::callbacks::{Again, Backlog, NewCallback};

use super::*;

fn target() -> TargetName {
    TargetName::parse("app").expect("a name")
}

fn record(n: u32, states: Option<(State, State)>, sent: Sent, delivery: Option<Delivery>) -> Record {
    Record {
        notification: Some(id(n)),
        event_id: Some(event(n)),
        from: states.map(|states| states.0),
        to: states.map(|states| states.1),
        sent: Some(sent),
        delivery,
        ..Record::new(NOW, tenant("acme"), What::Evidence, Actor::Daemon(DaemonPart::Worker))
    }
}

async fn append(bed: &Bed, records: impl IntoIterator<Item = Record>) {
    let mut tx = bed.begin().await;
    tx.write(&log(records)).await.expect("writes");
    tx.commit().await.expect("commits");
}

/// A log of three records of one notification and one of another.
async fn told(bed: &Bed) {
    append(
        bed,
        [
            record(1, Some((State::Accepted, State::Dispatching)), Sent::Unknown, None),
            record(2, Some((State::Accepted, State::Cancelled)), Sent::No, None),
            record(1, Some((State::Dispatching, State::Dispatched)), Sent::Yes, None),
            record(1, None, Sent::Yes, Some(Delivery::Delivered)),
        ],
    )
    .await;
}

async fn a_record_is_read_with_what_was_known_before_it(bed: Bed) {
    told(&bed).await;
    let callbacks = bed.store.callbacks();
    let logged = callbacks.logged(&tenant("acme"), 0, 4).await.expect("reads");
    let seen: Vec<_> = logged.iter().map(|l| (l.pos, l.before, l.state)).collect();
    let before = |sent, delivery| Before { sent, delivery };
    let wanted = [
        (1, before(None, None), State::Dispatching),
        (2, before(None, None), State::Cancelled),
        (3, before(Some(Sent::Unknown), None), State::Dispatched),
        (4, before(Some(Sent::Yes), None), State::Dispatched),
    ];
    assert_eq!(seen, wanted);
    let changes: Vec<_> = logged.iter().map(|l| Change::told_by(&l.record, l.before, l.state)).collect();
    assert_eq!(changes, [None, Some(Change::Cancelled), Some(Change::Dispatched), Some(Change::Delivered)]);
    let positions = |logged: Vec<sendonce::store::callbacks::Logged>| logged.iter().map(|l| l.pos).collect::<Vec<_>>();
    assert_eq!(positions(callbacks.logged(&tenant("acme"), 1, 3).await.expect("reads")), [2, 3]);
    assert!(callbacks.logged(&tenant("other"), 0, 4).await.expect("reads").is_empty());
}

fn new(pos: i64, n: u32, change: Change) -> NewCallback {
    NewCallback { pos, notification: id(n), change, state: State::Dispatched, due_at: NOW }
}

async fn the_log_is_taken_over_once_whoever_does_it(bed: Bed) {
    told(&bed).await;
    let callbacks = bed.store.callbacks();
    callbacks.enlist(&target(), 1).await.expect("enlists");
    callbacks.enlist(&target(), 4).await.expect("stays");
    assert_eq!(callbacks.place(&target()).await, Ok(1));
    let two = [new(2, 2, Change::Cancelled), new(3, 1, Change::Dispatched)];
    assert_eq!(callbacks.take_over(&target(), 1, 3, &two).await, Ok(true));
    assert_eq!(callbacks.take_over(&target(), 1, 3, &two).await, Ok(false), "another node was first");
    assert_eq!(callbacks.take_over(&target(), 3, 4, &[new(4, 1, Change::Delivered)]).await, Ok(true));
    assert_eq!(callbacks.take_over(&target(), 4, 4, &[]).await, Ok(true));
    assert_eq!(callbacks.place(&target()).await, Ok(4));
    assert_eq!(callbacks.backlog(&target()).await, Ok(Backlog { count: 3, oldest: Some(NOW) }));
    let other = TargetName::parse("other").expect("a name");
    assert_eq!(callbacks.backlog(&other).await, Ok(Backlog::default()));
    assert!(callbacks.place(&other).await.is_err());
}

async fn of_each_notification_only_the_earliest_comes_first_due_first(bed: Bed) {
    told(&bed).await;
    let callbacks = bed.store.callbacks();
    callbacks.enlist(&target(), 0).await.expect("enlists");
    let all = [new(2, 2, Change::Cancelled), new(3, 1, Change::Dispatched), new(4, 1, Change::Delivered)];
    assert_eq!(callbacks.take_over(&target(), 0, 4, &all).await, Ok(true));
    let first = async || callbacks.first(&target(), 10).await.expect("reads");
    let positions = async || first().await.iter().map(|c| c.pos).collect::<Vec<_>>();
    assert_eq!(positions().await, [2, 3]);
    assert_eq!(callbacks.first(&target(), 1).await.expect("reads").len(), 1);
    let later = NOW.plus(Duration::from_secs(9));
    callbacks.settle(&target(), &[], &[Again { pos: 2, tries: 300, due_at: later }]).await.expect("settles");
    assert_eq!(positions().await, [3, 2], "what is postponed comes later");
    let again = &first().await[1];
    assert_eq!((again.tries, again.due_at, &again.event_id), (300, later, &event(2)));
    callbacks.settle(&target(), &[3, 99], &[]).await.expect("settles");
    assert_eq!(positions().await, [4, 2], "its successor's turn has come");
    let last = &first().await[0];
    assert_eq!(
        (last.change, last.delivery, last.sent),
        (Change::Delivered, Some(Delivery::Delivered), Some(Sent::Yes))
    );
    callbacks.settle(&target(), &[2, 4], &[Again { pos: 99, tries: 1, due_at: later }]).await.expect("settles");
    assert_eq!(callbacks.backlog(&target()).await, Ok(Backlog::default()));
}

async fn what_is_to_be_told_outlives_its_notification(bed: Bed) {
    admit(bed.store.as_ref(), 1..2).await;
    told(&bed).await;
    let callbacks = bed.store.callbacks();
    callbacks.enlist(&target(), 0).await.expect("enlists");
    assert_eq!(callbacks.take_over(&target(), 0, 3, &[new(3, 1, Change::Dispatched)]).await, Ok(true));
    let outcome = NotificationOutcome { state: State::Dispatched, finished_at: Some(NOW), ..NotificationOutcome::NEW };
    let mut tx = bed.begin().await;
    tx.write(&over([1])).await.expect("writes");
    tx.write(&outcomes([NotificationUpdate { id: id(1), outcome }])).await.expect("writes");
    assert_eq!(tx.forget_notifications(NOW.plus(Duration::from_secs(60)), 10).await, Ok(1));
    tx.commit().await.expect("commits");
    let first = callbacks.first(&target(), 10).await.expect("reads");
    assert_eq!((first.len(), &first[0].event_id), (1, &event(1)));
}

on_both! {
    a_record_is_read_with_what_was_known_before_it,
    the_log_is_taken_over_once_whoever_does_it,
    of_each_notification_only_the_earliest_comes_first_due_first,
    what_is_to_be_told_outlives_its_notification,
}
