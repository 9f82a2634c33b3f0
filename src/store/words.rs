//! Pieces of statements that are the same on both backends: what rows have, and which states are final.

macro_rules! notification_columns {
    () => {
        "id, tenant, key_h, event_h, event_id, kind, mask, fingerprint, created_at, expires_at, finished_at, state, sent, \
         attempt, sent_attempt, open_attempt, channel, delivered, undelivered, parts, provider, message_id, receipt_key"
    };
}

macro_rules! log_columns {
    () => {
        "at, tenant, notification, event_id, what, from_state, to_state, sent, delivery, attempt, provider, message_id, \
         outcome, reason, source, actor, address_h, ticket"
    };
}

macro_rules! work_and_its_notification {
    ($($from:literal)+) => {
        concat!("SELECT ", work_columns!(), " ", $($from),+)
    };
}

/// The same, and whether there is newer work of the same person.
macro_rules! due_work {
    ($($from:literal)+) => {
        concat!(
            "SELECT ",
            work_columns!(),
            ", CASE WHEN EXISTS (SELECT 1 FROM work AS newer WHERE newer.user_h = w.user_h \
             AND (newer.ordered_at, newer.id) > (w.ordered_at, w.id)) THEN 1 ELSE 0 END AS overtaken ",
            $($from),+
        )
    };
}

macro_rules! work_columns {
    () => {
        "w.id, w.state, w.sent, w.queue, w.due_at, w.expires_at, w.ordered_at, w.user_h, w.legs, w.leg, w.provider, \
         w.owner, w.claim, w.attempt, w.used, w.open_attempt, w.sent_attempt, w.probing, w.cancel_mark, w.supersede_mark, \
         w.tries_here, w.asked_attempt, w.asked_account, w.asked_rev, w.first_there_at, w.ended_at, w.cause, w.misses, \
         w.asks, w.sealed_to, w.sealed_message, n.tenant, n.event_id, n.kind, n.created_at, n.mask"
    };
}

macro_rules! final_states {
    () => {
        "('dispatched', 'failed', 'expired', 'cancelled', 'superseded')"
    };
}
