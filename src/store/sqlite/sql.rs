//! Every statement, with a constant text: what varies comes in as parameters. The batches that every notification passes
//! are rows of bound values (`bound.rs`), the others one JSON array (`batch.rs`).

use super::bound::Batched;

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const CHECKPOINT_PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
pub(super) const CHECKPOINT_TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// Whether the file has tables that no migration of ours made.
pub(super) const IS_FOREIGN: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema) \
     AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_sqlx_migrations')";

pub(super) const INCARNATION: &str =
    "INSERT INTO meta (name, value) VALUES ('incarnation', ?1) ON CONFLICT (name) DO NOTHING";

pub(super) const HIGH_WATER: &str = "SELECT (SELECT value FROM meta WHERE name = 'incarnation') AS value, \
     coalesce((SELECT pos FROM log ORDER BY pos DESC LIMIT 1), 0) AS pos, \
     coalesce((SELECT at FROM log ORDER BY pos DESC LIMIT 1), 0) AS at";

/// Inserts what is new.
pub(super) static INSERT_NOTIFICATIONS: Batched = Batched::new(
    concat!("INSERT INTO notification (", notification_columns!(), ") SELECT * FROM "),
    23,
    " WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

pub(super) const DELETE_NOTIFICATIONS: &str =
    "DELETE FROM notification WHERE id IN (SELECT unhex(value) FROM jsonb_each(?1))";

pub(super) const KNOWN: &str = "\
     SELECT n.id, n.tenant, n.key_h, n.event_h, n.event_id, n.fingerprint, n.expires_at \
     FROM jsonb_each(?1) AS j CROSS JOIN notification AS n \
     ON n.tenant = j.value->>0 AND n.key_h = unhex(j.value->>1) \
     UNION \
     SELECT n.id, n.tenant, n.key_h, n.event_h, n.event_id, n.fingerprint, n.expires_at \
     FROM jsonb_each(?1) AS j CROSS JOIN notification AS n \
     ON n.tenant = j.value->>0 AND n.event_h = unhex(j.value->>2)";

pub(super) const NOTIFICATIONS: &str = concat!(
    "SELECT ",
    notification_columns!(),
    " FROM notification WHERE id IN (SELECT unhex(value) FROM jsonb_each(?1))"
);

pub(super) static UPDATE_NOTIFICATIONS: Batched = Batched::new(
    "UPDATE notification SET finished_at = j.column2, state = j.column3, sent = j.column4, attempt = j.column5, sent_attempt = j.column6, \
     open_attempt = j.column7, channel = j.column8, delivered = j.column9, undelivered = j.column10, parts = j.column11, \
     provider = j.column12, message_id = j.column13, receipt_key = j.column14 FROM ",
    14,
    " AS j WHERE notification.id = j.column1",
);

pub(super) static INSERT_WORK: Batched = Batched::new(
    "INSERT INTO work (id, state, sent, queue, due_at, leg, provider, owner, claim, attempt, used, open_attempt, \
     sent_attempt, probing, cancel_mark, supersede_mark, tries_here, asked_attempt, asked_account, asked_rev, first_there_at, \
     ended_at, cause, misses, asks, expires_at, ordered_at, user_h, legs, sealed_to, sealed_message) SELECT * FROM ",
    31,
    " WHERE column1 IS NOT NULL",
);

/// Writes what still has its guard (the 26th and 27th column).
pub(super) static UPDATE_WORK: Batched = Batched::new(
    "UPDATE work SET state = j.column2, sent = j.column3, queue = j.column4, due_at = j.column5, leg = j.column6, \
     provider = j.column7, owner = j.column8, claim = j.column9, attempt = j.column10, used = j.column11, \
     open_attempt = j.column12, sent_attempt = j.column13, probing = j.column14, cancel_mark = j.column15, supersede_mark = j.column16, \
     tries_here = j.column17, asked_attempt = j.column18, asked_account = j.column19, asked_rev = j.column20, \
     first_there_at = j.column21, ended_at = j.column22, cause = j.column23, misses = j.column24, asks = j.column25, \
     sealed_message = CASE WHEN j.column28 THEN NULL ELSE work.sealed_message END FROM ",
    28,
    " AS j WHERE work.id = j.column1 AND work.state = j.column26 AND work.attempt = j.column27",
);

pub(super) const DELETE_WORK: &str = "DELETE FROM work WHERE id IN (SELECT unhex(value) FROM jsonb_each(?1))";

pub(super) const WORK: &str = work_and_its_notification!(
    "FROM work AS w JOIN notification AS n ON n.id = w.id WHERE w.id IN (SELECT unhex(value) FROM jsonb_each(?1))"
);

/// Parameters: queue, now, limit.
pub const DUE: &str = due_work!(
    "FROM work AS w INDEXED BY work_due CROSS JOIN notification AS n ON n.id = w.id "
    "WHERE w.queue = ?1 AND w.due_at <= ?2 ORDER BY w.due_at LIMIT ?3"
);

pub(super) const SET_ASIDE: &str = "UPDATE work SET queue = NULL WHERE id IN (SELECT unhex(value) FROM jsonb_each(?1))";

pub(super) const WORK_OF_USERS: &str =
    "SELECT user_h, id, ordered_at FROM work WHERE user_h IN (SELECT unhex(value) FROM jsonb_each(?1))";

pub(super) static APPEND: Batched =
    Batched::new(concat!("INSERT INTO log (", log_columns!(), ") SELECT * FROM "), 18, " WHERE column1 IS NOT NULL");

pub(super) const QUOTAS: &str =
    "SELECT scope_h, tat FROM quota WHERE scope_h IN (SELECT unhex(value) FROM jsonb_each(?1))";

// `WHERE true` keeps the parser from reading ON CONFLICT as a join's ON (sqlite.org, "UPSERT", section 2.2).
pub(super) const SAVE_QUOTAS: &str = "INSERT INTO quota (scope_h, tat) \
     SELECT unhex(value->>0), value->>1 FROM jsonb_each(?1) WHERE true \
     ON CONFLICT (scope_h) DO UPDATE SET tat = excluded.tat";

pub(super) const KEEP_RECEIPTS: &str = "\
     INSERT INTO unmatched_receipt (provider, message_id, status, part, parts, received_at) \
     SELECT value->>0, value->>1, value->>2, value->>3, value->>4, ?2 FROM jsonb_each(?1) WHERE true \
     ON CONFLICT DO NOTHING";

pub(super) const TAKE_RECEIPTS: &str = "DELETE FROM unmatched_receipt \
     WHERE (provider, message_id) IN (SELECT value->>0, value->>1 FROM jsonb_each(?1)) \
     RETURNING seq, provider, message_id, status, part, parts";

pub(super) const BY_RECEIPT_KEY: &str = "SELECT n.provider, n.receipt_key, n.id \
     FROM jsonb_each(?1) AS j CROSS JOIN notification AS n \
     ON n.provider = j.value->>0 AND n.receipt_key = j.value->>1";

pub(super) const SWEEP_QUOTAS: &str =
    "DELETE FROM quota WHERE scope_h IN (SELECT scope_h FROM quota WHERE tat <= ?1 LIMIT ?2)";

/// Parameters: oldest time kept, most rows kept, limit.
pub(super) const SWEEP_RECEIPTS: &str = "DELETE FROM unmatched_receipt WHERE seq IN (\
     SELECT seq FROM unmatched_receipt WHERE received_at < ?1 \
     OR seq <= (SELECT seq FROM unmatched_receipt ORDER BY seq DESC LIMIT 1 OFFSET ?2) ORDER BY seq LIMIT ?3)";

/// Parameters: first id that is kept, limit.
pub(super) const FORGET_NOTIFICATIONS: &str = "DELETE FROM notification WHERE id IN (\
     SELECT n.id FROM notification AS n WHERE n.id < ?1 AND n.finished_at IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM work AS w WHERE w.id = n.id) ORDER BY n.id LIMIT ?2)";

pub(super) const STATUS_BY_ID: &str =
    concat!("SELECT ", notification_columns!(), " FROM notification WHERE tenant = ?1 AND id = ?2");
pub(super) const STATUS_BY_EVENT: &str =
    concat!("SELECT ", notification_columns!(), " FROM notification WHERE tenant = ?1 AND event_h = ?2");
pub(super) const STATUS_BY_KEY: &str =
    concat!("SELECT ", notification_columns!(), " FROM notification WHERE tenant = ?1 AND key_h = ?2");

pub(super) const LOG_OF: &str =
    concat!("SELECT pos, ", log_columns!(), " FROM log WHERE notification = ?1 ORDER BY pos");

/// Parameters: now, limit.
pub const EXPIRED: &str = "SELECT id FROM work WHERE expires_at <= ?1 \
     AND (state = 'accepted' OR state = 'retry_wait' OR state = 'dispatch_unknown') ORDER BY expires_at LIMIT ?2";

/// Parameters: owner, limit.
pub const STRANDED: &str = "SELECT id, owner FROM work INDEXED BY work_owner WHERE owner <> ?1 \
     AND owner NOT IN (SELECT boot FROM node) AND (state = 'dispatching' OR probing = 1) LIMIT ?2";

/// Parameters: name, value.
pub(super) const PIN: &str = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
pub(super) const PINNED: &str = "SELECT value = ?2 AS same FROM meta WHERE name = ?1";

pub(super) const KEEP_PREDECESSOR: &str = "INSERT INTO meta (name, value) SELECT 'predecessor', value FROM meta \
     WHERE name = 'incarnation' ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub(super) const SUCCEED: &str = "UPDATE meta SET value = ?1 WHERE name = 'incarnation'";
pub(super) const SUCCEEDS: &str =
    "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'predecessor' AND value = ?1) AS succeeds";

pub(super) const FORGET_NODES: &str = "DELETE FROM node";

/// Parameters: name, boot, started, expires.
pub(super) const ENROL: &str = "INSERT INTO node (name, boot, started_at, expires_at) VALUES (?1, ?2, ?3, ?4)";

pub(super) const NEXT_DUE: &str = "SELECT min(due_at) AS due_at FROM work WHERE queue = ?1";

/// Parameters: after id, tenant, provider, cause, before, limit.
pub(super) const UNKNOWNS: &str = work_and_its_notification!(
    "FROM work AS w CROSS JOIN notification AS n ON n.id = w.id WHERE w.id > ?1 AND w.open_attempt IS NOT NULL "
    "AND (?2 IS NULL OR n.tenant = ?2) AND (?3 IS NULL OR w.provider = ?3) AND (?4 IS NULL OR w.cause = ?4) "
    "AND (?5 IS NULL OR w.ended_at < ?5) ORDER BY w.id LIMIT ?6"
);

// One text for each way into the table: a term that may be absent cannot use an index.
macro_rules! log_filter {
    () => {
        " AND pos > ?1 AND pos <= ?9 AND (?2 IS NULL OR tenant = ?2) AND (?3 IS NULL OR at >= ?3) AND (?4 IS NULL OR at < ?4) \
          AND (?5 IS NULL OR event_id = ?5) AND (?6 IS NULL OR what = ?6)"
    };
}

pub(super) const LOG_PAGE: &str =
    concat!("SELECT pos, ", log_columns!(), " FROM log WHERE ?8 IS NULL", log_filter!(), " ORDER BY pos LIMIT ?7");
pub(super) const LOG_PAGE_OF: &str = concat!(
    "SELECT pos, ",
    log_columns!(),
    " FROM log WHERE notification = ?8",
    log_filter!(),
    " ORDER BY pos LIMIT ?7"
);

macro_rules! is_final_step {
    () => {
        concat!(
            "l.to_state IN ",
            final_states!(),
            " AND (l.from_state IS NULL OR l.from_state NOT IN ",
            final_states!(),
            ")"
        )
    };
}

pub(super) const ACCOUNT_COUNTS: &str = concat!(
    "SELECT * FROM (SELECT count(*) AS notifications, count(*) FILTER (WHERE finished) AS finished, \
     count(*) FILTER (WHERE sent = 'yes') AS sent, count(*) FILTER (WHERE finished AND sent = 'no') AS not_sent, \
     count(*) FILTER (WHERE sent = 'unknown') AS unknown \
     FROM (SELECT n.finished_at IS NOT NULL AS finished, coalesce(w.sent, n.sent) AS sent \
     FROM notification AS n LEFT JOIN work AS w ON w.id = n.id WHERE ?1 IS NULL OR n.tenant = ?1)) \
     CROSS JOIN (SELECT count(*) FILTER (WHERE l.what = 'accepted') AS accepted_records, \
     count(*) FILTER (WHERE ",
    is_final_step!(),
    ") AS final_records FROM log AS l CROSS JOIN notification AS n ON n.id = l.notification \
     WHERE ?1 IS NULL OR n.tenant = ?1)"
);

pub(super) const ACCOUNT_FAULTS: &str = concat!(
    "SELECT * FROM (SELECT n.id AS id, n.finished_at IS NOT NULL AS finished, \
     (SELECT count(*) FROM log AS l WHERE l.notification = n.id AND l.what = 'accepted') AS accepted_records, \
     (SELECT count(*) FROM log AS l WHERE l.notification = n.id AND ",
    is_final_step!(),
    ") AS final_records FROM notification AS n WHERE ?1 IS NULL OR n.tenant = ?1) \
     WHERE accepted_records <> 1 OR final_records <> finished ORDER BY id LIMIT ?2"
);

pub(super) const WORK_COUNTS: &str =
    "SELECT provider, state, count(*) AS count, min(due_at) AS oldest_due FROM work GROUP BY provider, state";

pub(super) const LIVE: &str = "SELECT id FROM work WHERE id > ?1 ORDER BY id LIMIT ?2";

/// Parameters: target, position.
pub(super) const ENLIST_TARGET: &str =
    "INSERT INTO callback_target (name, pos) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
pub(super) const TARGET_PLACE: &str = "SELECT pos FROM callback_target WHERE name = ?1";
/// Parameters: target, from, to.
pub(super) const MOVE_TARGET: &str = "UPDATE callback_target SET pos = ?3 WHERE name = ?1 AND pos = ?2";

/// Parameters: tenant, after position, up to position.
pub(super) const LOGGED: &str = logged!("?1", "?2", "?3");

pub(super) const INSERT_CALLBACKS: &str = "\
     INSERT INTO callback (target, pos, notification, change, state, tries, due_at) \
     SELECT ?1, j.value->>0, unhex(j.value->>1), j.value->>2, j.value->>3, 0, j.value->>4 FROM jsonb_each(?2) AS j";

/// Parameters: target, limit.
pub(super) const FIRST_CALLBACKS: &str = first_callbacks!("CROSS JOIN", "?1", "?2");

pub(super) const DELETE_CALLBACKS: &str =
    "DELETE FROM callback WHERE target = ?1 AND pos IN (SELECT value->>0 FROM jsonb_each(?2))";
pub(super) const POSTPONE_CALLBACKS: &str = "\
     UPDATE callback SET tries = j.value->>1, due_at = j.value->>2 FROM jsonb_each(?2) AS j \
     WHERE callback.target = ?1 AND callback.pos = j.value->>0";

pub(super) const CALLBACK_BACKLOG: &str = callback_backlog!("CROSS JOIN", "?1");

/// The statements that every notification passes: none of them may read a table from end to end.
pub fn hot() -> impl Iterator<Item = &'static str> {
    let batched = [&INSERT_NOTIFICATIONS, &UPDATE_NOTIFICATIONS, &INSERT_WORK, &UPDATE_WORK, &APPEND];
    let others = [
        DELETE_NOTIFICATIONS,
        KNOWN,
        NOTIFICATIONS,
        DELETE_WORK,
        WORK,
        DUE,
        SET_ASIDE,
        WORK_OF_USERS,
        QUOTAS,
        SAVE_QUOTAS,
        TAKE_RECEIPTS,
        BY_RECEIPT_KEY,
        LOG_OF,
    ];
    others.into_iter().chain(batched.into_iter().flat_map(Batched::texts))
}

/// The other statements.
pub const RARE: &[&str] = &[
    PIN,
    PINNED,
    KEEP_PREDECESSOR,
    SUCCEED,
    SUCCEEDS,
    FORGET_NODES,
    ENROL,
    BEGIN,
    COMMIT,
    ROLLBACK,
    CHECKPOINT_PASSIVE,
    CHECKPOINT_TRUNCATE,
    IS_FOREIGN,
    INCARNATION,
    HIGH_WATER,
    KEEP_RECEIPTS,
    SWEEP_QUOTAS,
    SWEEP_RECEIPTS,
    FORGET_NOTIFICATIONS,
    STATUS_BY_ID,
    STATUS_BY_EVENT,
    STATUS_BY_KEY,
    EXPIRED,
    STRANDED,
    NEXT_DUE,
    UNKNOWNS,
    LOG_PAGE,
    LOG_PAGE_OF,
    ACCOUNT_COUNTS,
    ACCOUNT_FAULTS,
    WORK_COUNTS,
    LIVE,
    ENLIST_TARGET,
    TARGET_PLACE,
    MOVE_TARGET,
    LOGGED,
    INSERT_CALLBACKS,
    FIRST_CALLBACKS,
    DELETE_CALLBACKS,
    POSTPONE_CALLBACKS,
    CALLBACK_BACKLOG,
];
