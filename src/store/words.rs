//! Pieces of statements that are the same on both backends: what rows have, and which states are final.

macro_rules! notification_columns {
    () => {
        "id, tenant, key_h, event_h, event_id, kind, mask, fingerprint, created_at, expires_at, finished_at, state, sent, \
         sent_attempt, open_attempt, channel, delivered, undelivered, parts, provider, message_id, receipt_key"
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
        concat!(
            "SELECT w.id, w.state, w.sent, w.queue, w.due_at, w.expires_at, w.ordered_at, w.user_h, w.legs, w.leg, \
             w.provider, w.owner, w.claim, w.attempt, w.used, w.open_attempt, w.sent_attempt, w.probing, w.cancel_mark, \
             w.supersede_mark, w.tries_here, w.asked_attempt, w.asked_account, w.asked_rev, w.first_there_at, w.ended_at, \
             w.cause, w.misses, w.asks, w.sealed_to, w.sealed_message, n.tenant, n.event_id, n.created_at, n.mask ",
            $($from),+
        )
    };
}

macro_rules! final_states {
    () => {
        "('dispatched', 'failed', 'expired', 'cancelled', 'superseded')"
    };
}
