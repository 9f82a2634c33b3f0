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

/// Records of a tenant, each with what its notification's record before it told and the state after it. That an attempt
/// began is no news for an app.
macro_rules! logged {
    ($tenant:literal, $after:literal, $up_to:literal) => {
        concat!(
            "SELECT pos, ",
            log_columns!(),
            ", (SELECT p.sent FROM log AS p WHERE p.notification = l.notification AND p.pos < l.pos ORDER BY p.pos DESC \
             LIMIT 1) AS was_sent, (SELECT p.delivery FROM log AS p WHERE p.notification = l.notification \
             AND p.pos < l.pos ORDER BY p.pos DESC LIMIT 1) AS was_delivery, (SELECT p.to_state FROM log AS p \
             WHERE p.notification = l.notification AND p.pos <= l.pos AND p.to_state IS NOT NULL ORDER BY p.pos DESC \
             LIMIT 1) AS state FROM log AS l WHERE notification IS NOT NULL AND what <> 'attempt_begun' AND tenant = ",
            $tenant,
            " AND pos > ",
            $after,
            " AND pos <= ",
            $up_to,
            " ORDER BY pos"
        )
    };
}

/// Of each notification the earliest callback that is not settled.
macro_rules! first_callbacks {
    ($join:literal, $target:literal, $limit:literal) => {
        concat!(
            "SELECT c.pos, c.notification, c.change, c.state, c.tries, c.due_at, l.at, l.event_id, l.sent, l.delivery, \
             l.attempt, l.provider, l.outcome, l.reason FROM callback AS c ",
            $join,
            " log AS l ON l.pos = c.pos WHERE c.target = ",
            $target,
            " AND NOT EXISTS (SELECT 1 FROM callback AS e WHERE e.target = c.target \
             AND e.notification = c.notification AND e.pos < c.pos) ORDER BY c.due_at, c.pos LIMIT ",
            $limit
        )
    };
}

macro_rules! callback_backlog {
    ($join:literal, $target:literal) => {
        concat!(
            "SELECT (SELECT count(*) FROM callback WHERE target = ",
            $target,
            ") AS count, (SELECT l.at FROM callback AS c ",
            $join,
            " log AS l ON l.pos = c.pos WHERE c.target = ",
            $target,
            " ORDER BY c.pos LIMIT 1) AS oldest"
        )
    };
}
