//! Every statement, with a constant text: what varies comes in as parameters, batches as one array for each column.
//!
//! Where a statement differs from its SQLite twin in more than placeholders, it is for the rows' locks: other nodes write
//! at the same time. READ COMMITTED is meant: a statement sees what was committed before it began, so that `KNOWN` finds
//! the row that made `INSERT_NOTIFICATIONS` pass over ours, however young it is.

/// First key of all advisory locks of this program.
macro_rules! lock_class {
    () => {
        "1936027236"
    };
}

/// Key of the lock that every write transaction shares.
macro_rules! writers {
    () => {
        concat!(lock_class!(), ", 1")
    };
}

macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now"
    };
}

/// The lock makes the transaction countable (`RUNNING`), and comes before any position in the log is taken.
pub(super) const BEGIN: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared(",
    writers!(),
    "), ",
    clock!(),
    ", current_setting('transaction_read_only') = 'on' AS read_only"
);
/// A statement that is cancelled while it waits for a synchronous standby commits nevertheless, with no more than a
/// warning (PostgreSQL, `SyncRepWaitForLSN`); so no time-out may cancel this one.
pub(super) const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
/// Several statements that see one moment.
pub(super) const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

pub(super) const NOW: &str = concat!("SELECT ", clock!());

/// What the server is and promises.
pub(super) const FITNESS: &str = "SELECT current_setting('server_version_num')::int AS version, \
     current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit, \
     current_setting('synchronous_standby_names') AS standbys, current_setting('server_encoding') AS encoding, \
     current_setting('transaction_read_only') AS read_only";

/// Whether the schema has tables of ours that no migration of ours made.
pub(super) const IS_FOREIGN: &str = "SELECT to_regclass('_sqlx_migrations') IS NULL AND (to_regclass('notification') \
     IS NOT NULL OR to_regclass('work') IS NOT NULL OR to_regclass('log') IS NOT NULL OR to_regclass('meta') IS NOT NULL)";

pub(super) const INCARNATION: &str =
    "INSERT INTO meta (name, value) VALUES ('incarnation', $1) ON CONFLICT (name) DO NOTHING";

pub(super) const HIGH_WATER: &str = "SELECT (SELECT value FROM meta WHERE name = 'incarnation') AS value, \
     coalesce((SELECT pos FROM log ORDER BY pos DESC LIMIT 1), 0) AS pos, \
     coalesce((SELECT at FROM log ORDER BY pos DESC LIMIT 1), 0) AS at";

/// The last position that was given out, to whomever.
pub(super) const LAST_TAKEN: &str = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS pos FROM log_pos_seq";

/// The write transactions that run.
pub(super) const RUNNING: &str = concat!(
    "SELECT virtualtransaction AS name FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND (classid::bigint, objid::bigint) = (",
    writers!(),
    ")"
);

pub(super) const INSERT_NOTIFICATIONS: &str = "\
     INSERT INTO notification (id, tenant, key_h, event_h, event_id, kind, mask, fingerprint, created_at, expires_at, \
     finished_at, state, sent, attempt, sent_attempt, open_attempt, channel, delivered, undelivered, parts, provider, \
     message_id, receipt_key) SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::text[], \
     $6::text[], $7::text[], $8::bytea[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], \
     $14::smallint[], $15::smallint[], $16::smallint[], $17::text[], $18::bigint[], $19::bigint[], $20::bigint[], \
     $21::text[], $22::text[], $23::text[]) ON CONFLICT DO NOTHING RETURNING id";

pub(super) const DELETE_NOTIFICATIONS: &str = "DELETE FROM notification WHERE id = ANY($1::bytea[])";

pub(super) const KNOWN: &str = "\
     SELECT n.id, n.tenant, n.key_h, n.event_h, n.event_id, n.fingerprint, n.expires_at \
     FROM unnest($1::text[], $2::bytea[]) AS j (tenant, key_h) \
     JOIN notification AS n ON n.tenant = j.tenant AND n.key_h = j.key_h \
     UNION \
     SELECT n.id, n.tenant, n.key_h, n.event_h, n.event_id, n.fingerprint, n.expires_at \
     FROM unnest($1::text[], $3::bytea[]) AS j (tenant, event_h) \
     JOIN notification AS n ON n.tenant = j.tenant AND n.event_h = j.event_h";

/// Locked, because two nodes may add to what receipts said of one finished message.
pub(super) const NOTIFICATIONS: &str = concat!(
    "SELECT ",
    notification_columns!(),
    " FROM notification WHERE id = ANY($1::bytea[]) ORDER BY id FOR NO KEY UPDATE"
);

/// Everything that a batch changes, each table's rows in one part. Its parts see what was there before it, so that no row
/// may be in two of them. Answers how many rows of work still had their guard.
pub(super) const WRITE: &str = "\
     WITH admitted AS (INSERT INTO work (id, state, sent, queue, due_at, leg, provider, owner, claim, attempt, used, \
     open_attempt, sent_attempt, probing, cancel_mark, supersede_mark, tries_here, asked_attempt, asked_account, \
     asked_rev, first_there_at, ended_at, cause, misses, asks, expires_at, ordered_at, user_h, legs, sealed_to, \
     sealed_message) SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bigint[], \
     $6::smallint[], $7::text[], $8::text[], $9::bigint[], $10::smallint[], $11::smallint[], $12::smallint[], \
     $13::smallint[], $14::smallint[], $15::smallint[], $16::smallint[], $17::smallint[], $18::smallint[], \
     $19::bytea[], $20::bytea[], $21::bigint[], $22::bigint[], $23::text[], $24::smallint[], $25::integer[], \
     $26::bigint[], $27::bigint[], $28::bytea[], $29::bytea[], $30::bytea[], $31::bytea[])), \
     changed AS (UPDATE work AS w SET state = j.state, sent = j.sent, queue = j.queue, due_at = j.due_at, leg = \
     j.leg, provider = j.provider, owner = j.owner, claim = j.claim, attempt = j.attempt, used = j.used, open_attempt \
     = j.open_attempt, sent_attempt = j.sent_attempt, probing = j.probing, cancel_mark = j.cancel_mark, \
     supersede_mark = j.supersede_mark, tries_here = j.tries_here, asked_attempt = j.asked_attempt, asked_account = \
     j.asked_account, asked_rev = j.asked_rev, first_there_at = j.first_there_at, ended_at = j.ended_at, cause = \
     j.cause, misses = j.misses, asks = j.asks, sealed_message = CASE WHEN j.wipe_message = 1 THEN NULL ELSE \
     w.sealed_message END FROM unnest($32::bytea[], $33::text[], $34::text[], $35::text[], $36::bigint[], \
     $37::smallint[], $38::text[], $39::text[], $40::bigint[], $41::smallint[], $42::smallint[], $43::smallint[], \
     $44::smallint[], $45::smallint[], $46::smallint[], $47::smallint[], $48::smallint[], $49::smallint[], \
     $50::bytea[], $51::bytea[], $52::bigint[], $53::bigint[], $54::text[], $55::smallint[], $56::integer[], \
     $57::text[], $58::smallint[], $59::smallint[]) AS j (id, state, sent, queue, due_at, leg, provider, owner, \
     claim, attempt, used, open_attempt, sent_attempt, probing, cancel_mark, supersede_mark, tries_here, \
     asked_attempt, asked_account, asked_rev, first_there_at, ended_at, cause, misses, asks, was_state, was_attempt, \
     wipe_message) WHERE w.id = j.id AND w.state = j.was_state AND w.attempt = j.was_attempt RETURNING w.id), \
     over AS (DELETE FROM work WHERE id = ANY($60::bytea[])), \
     told AS (UPDATE notification AS n SET finished_at = j.finished_at, state = j.state, sent = j.sent, attempt = \
     j.attempt, sent_attempt = j.sent_attempt, open_attempt = j.open_attempt, channel = j.channel, delivered = \
     j.delivered, undelivered = j.undelivered, parts = j.parts, provider = j.provider, message_id = j.message_id, \
     receipt_key = j.receipt_key FROM unnest($61::bytea[], $62::bigint[], $63::text[], $64::text[], $65::smallint[], \
     $66::smallint[], $67::smallint[], $68::text[], $69::bigint[], $70::bigint[], $71::bigint[], $72::text[], \
     $73::text[], $74::text[]) AS j (id, finished_at, state, sent, attempt, sent_attempt, open_attempt, channel, \
     delivered, undelivered, parts, provider, message_id, receipt_key) WHERE n.id = j.id), \
     logged AS (INSERT INTO log (at, tenant, notification, event_id, what, from_state, to_state, sent, delivery, \
     attempt, provider, message_id, outcome, reason, source, actor, address_h, ticket) SELECT * FROM \
     unnest($75::bigint[], $76::text[], $77::bytea[], $78::text[], $79::text[], $80::text[], $81::text[], \
     $82::text[], $83::text[], $84::smallint[], $85::text[], $86::text[], $87::text[], $88::text[], $89::text[], \
     $90::text[], $91::bytea[], $92::text[])) \
     SELECT count(*) AS changed FROM changed";

pub(super) const SET_ASIDE: &str = "UPDATE work SET queue = NULL WHERE id = ANY($1::bytea[])";

/// `OF w` locks the newest version of the row, and what is returned is that version.
pub(super) const WORK: &str = work_and_its_notification!(
    "FROM work AS w JOIN notification AS n ON n.id = w.id WHERE w.id = ANY($1::bytea[]) ORDER BY w.id FOR UPDATE OF w"
);

/// The same without the lock, for a reader.
pub(super) const WORK_UNLOCKED: &str =
    work_and_its_notification!("FROM work AS w JOIN notification AS n ON n.id = w.id WHERE w.id = ANY($1::bytea[])");

/// Parameters: queue, now, limit. All columns come out of the part that locks: a join from outside would read them as
/// they were before a lock that had to be waited for.
pub const DUE: &str = concat!(
    "WITH w AS MATERIALIZED (SELECT * FROM work WHERE queue = $1::text AND due_at <= $2::bigint \
     ORDER BY due_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED) ",
    due_work!("FROM w JOIN notification AS n ON n.id = w.id ORDER BY w.due_at")
);

pub(super) const WORK_OF_USERS: &str = "SELECT user_h, id, ordered_at FROM work WHERE user_h = ANY($1::bytea[])";

pub(super) const QUOTAS: &str =
    "SELECT scope_h, tat FROM quota WHERE scope_h = ANY($1::bytea[]) ORDER BY scope_h FOR NO KEY UPDATE";

/// Two nodes that are the first to see a scope both insert: the later arrival stands.
pub(super) const SAVE_QUOTAS: &str = "INSERT INTO quota (scope_h, tat) SELECT * FROM unnest($1::bytea[], $2::bigint[]) \
     ON CONFLICT (scope_h) DO UPDATE SET tat = greatest(quota.tat, excluded.tat)";

pub(super) const KEEP_RECEIPTS: &str = "\
     INSERT INTO unmatched_receipt (provider, message_id, status, part, parts, received_at) \
     SELECT j.*, $6::bigint FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS j \
     ON CONFLICT DO NOTHING";

pub(super) const TAKE_RECEIPTS: &str = "DELETE FROM unmatched_receipt AS r \
     USING unnest($1::text[], $2::text[]) AS j (provider, message_id) \
     WHERE r.provider = j.provider AND r.message_id = j.message_id \
     RETURNING r.seq, r.provider, r.message_id, r.status, r.part, r.parts";

pub(super) const BY_RECEIPT_KEY: &str = "SELECT n.provider, n.receipt_key, n.id \
     FROM unnest($1::text[], $2::text[]) AS j (provider, receipt_key) \
     JOIN notification AS n ON n.receipt_key = j.receipt_key AND n.provider = j.provider";

/// Parameters: now, limit, oldest time of a receipt that is kept, most receipts kept. What another node holds is left to it.
pub(super) const SWEEP_SMALL: &str = "\
     WITH quotas AS (DELETE FROM quota WHERE scope_h IN (\
     SELECT scope_h FROM quota WHERE tat <= $1::bigint LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) \
     DELETE FROM unmatched_receipt WHERE seq IN (\
     SELECT seq FROM unmatched_receipt WHERE received_at < $3::bigint \
     OR seq <= (SELECT seq FROM unmatched_receipt ORDER BY seq DESC LIMIT 1 OFFSET $4::bigint) \
     ORDER BY seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED)";

/// Parameters: first id that is kept, limit.
pub(super) const FORGET_NOTIFICATIONS: &str = "DELETE FROM notification WHERE id IN (\
     SELECT n.id FROM notification AS n WHERE n.id < $1::bytea AND n.finished_at IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM work AS w WHERE w.id = n.id) ORDER BY n.id LIMIT $2::bigint FOR UPDATE SKIP LOCKED)";

pub(super) const STATUS_BY_ID: &str =
    concat!("SELECT ", notification_columns!(), " FROM notification WHERE tenant = $1::text AND id = $2::bytea");
pub(super) const STATUS_BY_EVENT: &str =
    concat!("SELECT ", notification_columns!(), " FROM notification WHERE tenant = $1::text AND event_h = $2::bytea");
pub(super) const STATUS_BY_KEY: &str =
    concat!("SELECT ", notification_columns!(), " FROM notification WHERE tenant = $1::text AND key_h = $2::bytea");

pub(super) const LOG_OF: &str =
    concat!("SELECT pos, ", log_columns!(), " FROM log WHERE notification = $1::bytea ORDER BY pos");

/// Parameters: now, limit.
pub(super) const EXPIRED: &str = "SELECT id FROM work WHERE expires_at <= $1::bigint \
     AND state IN ('accepted', 'retry_wait', 'dispatch_unknown') ORDER BY expires_at, id LIMIT $2::bigint";

/// Parameters: owner, limit.
pub(super) const STRANDED: &str = "SELECT id, owner FROM work WHERE owner <> $1::text \
     AND owner NOT IN (SELECT boot FROM node) AND (state = 'dispatching' OR probing = 1) LIMIT $2::bigint";

/// Parameters: name, value.
pub(super) const PIN: &str = "INSERT INTO meta (name, value) VALUES ($1::text, $2::text) ON CONFLICT (name) DO NOTHING";
pub(super) const PINNED: &str = "SELECT value = $2::text AS same FROM meta WHERE name = $1::text";

pub(super) const KEEP_PREDECESSOR: &str = "INSERT INTO meta (name, value) SELECT 'predecessor', value FROM meta \
     WHERE name = 'incarnation' ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub(super) const SUCCEED: &str = "UPDATE meta SET value = $1::text WHERE name = 'incarnation'";
pub(super) const SUCCEEDS: &str =
    "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'predecessor' AND value = $1::text) AS succeeds";

/// Parameters: name, boot, lease. No row: another boot's lease still runs.
pub(super) const ENROL: &str = concat!(
    "INSERT INTO node AS n (name, boot, started_at, expires_at) \
     SELECT $1::text, $2::text, c.now, c.now + $3::bigint FROM (SELECT ",
    clock!(),
    ") AS c ON CONFLICT (name) DO UPDATE SET boot = excluded.boot, started_at = excluded.started_at, \
     expires_at = excluded.expires_at WHERE n.expires_at <= excluded.started_at OR n.boot = excluded.boot \
     RETURNING n.started_at AS now"
);

pub(super) const HOLDER: &str = concat!("SELECT expires_at, ", clock!(), " FROM node WHERE name = $1::text");

/// Parameters: name, boot, lease.
pub(super) const RENEW: &str = concat!(
    "UPDATE node SET expires_at = c.now + $3::bigint FROM (SELECT ",
    clock!(),
    ") AS c WHERE name = $1::text AND boot = $2::text RETURNING c.now AS now"
);

pub(super) const RELEASE: &str = "DELETE FROM node WHERE name = $1::text AND boot = $2::text";

/// Other nodes that are silent. One that renews its lease meanwhile is looked at again, and stays.
pub(super) const BURY: &str = concat!(
    "DELETE FROM node USING (SELECT ",
    clock!(),
    ") AS c WHERE name <> $1::text AND expires_at <= c.now RETURNING name"
);

/// One lead for each store, of which a database may have several in different schemas.
pub(super) const LEAD: &str = concat!(
    "SELECT pg_try_advisory_lock(",
    lock_class!(),
    ", hashtext((SELECT value FROM meta WHERE name = 'incarnation'))) AS leads"
);

pub(super) const RING: &str = "SELECT pg_notify('sendonce_due', told) FROM unnest($1::text[]) AS j (told)";

pub(super) const NEXT_DUE: &str = "SELECT min(due_at) AS due_at FROM work WHERE queue = $1::text";

/// Parameters: after id, tenant, provider, cause, before, limit.
pub(super) const UNKNOWNS: &str = work_and_its_notification!(
    "FROM work AS w JOIN notification AS n ON n.id = w.id WHERE w.id > $1::bytea AND w.open_attempt IS NOT NULL "
    "AND ($2::text IS NULL OR n.tenant = $2) AND ($3::text IS NULL OR w.provider = $3) "
    "AND ($4::text IS NULL OR w.cause = $4) "
    "AND ($5::bigint IS NULL OR w.ended_at < $5) ORDER BY w.id LIMIT $6::bigint"
);

// One text for each way into the table: a term that may be absent cannot use an index.
macro_rules! log_filter {
    () => {
        " AND pos > $1::bigint AND pos <= $9::bigint AND ($2::text IS NULL OR tenant = $2) \
          AND ($3::bigint IS NULL OR at >= $3) AND ($4::bigint IS NULL OR at < $4) \
          AND ($5::text IS NULL OR event_id = $5) AND ($6::text IS NULL OR what = $6)"
    };
}

pub(super) const LOG_PAGE: &str = concat!(
    "SELECT pos, ",
    log_columns!(),
    " FROM log WHERE $8::bytea IS NULL",
    log_filter!(),
    " ORDER BY pos LIMIT $7::bigint"
);
pub(super) const LOG_PAGE_OF: &str = concat!(
    "SELECT pos, ",
    log_columns!(),
    " FROM log WHERE notification = $8::bytea",
    log_filter!(),
    " ORDER BY pos LIMIT $7::bigint"
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
     FROM notification AS n LEFT JOIN work AS w ON w.id = n.id WHERE $1::text IS NULL OR n.tenant = $1) AS kept) AS rows \
     CROSS JOIN (SELECT count(*) FILTER (WHERE l.what = 'accepted') AS accepted_records, \
     count(*) FILTER (WHERE ",
    is_final_step!(),
    ") AS final_records FROM log AS l JOIN notification AS n ON n.id = l.notification \
     WHERE $1::text IS NULL OR n.tenant = $1) AS records"
);

pub(super) const ACCOUNT_FAULTS: &str = concat!(
    "SELECT * FROM (SELECT n.id AS id, (n.finished_at IS NOT NULL)::int AS finished, \
     (SELECT count(*) FROM log AS l WHERE l.notification = n.id AND l.what = 'accepted') AS accepted_records, \
     (SELECT count(*) FROM log AS l WHERE l.notification = n.id AND ",
    is_final_step!(),
    ") AS final_records FROM notification AS n WHERE $1::text IS NULL OR n.tenant = $1) AS kept \
     WHERE accepted_records <> 1 OR final_records <> finished ORDER BY id LIMIT $2::bigint"
);

pub(super) const WORK_COUNTS: &str =
    "SELECT provider, state, count(*) AS count, min(due_at) AS oldest_due FROM work GROUP BY provider, state";

pub(super) const LIVE: &str = "SELECT id FROM work WHERE id > $1::bytea ORDER BY id LIMIT $2::bigint";

/// Every statement that is prepared.
pub const ALL: &[&str] = &[
    NOW,
    FITNESS,
    INCARNATION,
    HIGH_WATER,
    LAST_TAKEN,
    RUNNING,
    INSERT_NOTIFICATIONS,
    DELETE_NOTIFICATIONS,
    KNOWN,
    NOTIFICATIONS,
    WRITE,
    SET_ASIDE,
    WORK,
    WORK_UNLOCKED,
    DUE,
    WORK_OF_USERS,
    QUOTAS,
    SAVE_QUOTAS,
    KEEP_RECEIPTS,
    TAKE_RECEIPTS,
    BY_RECEIPT_KEY,
    SWEEP_SMALL,
    FORGET_NOTIFICATIONS,
    STATUS_BY_ID,
    STATUS_BY_EVENT,
    STATUS_BY_KEY,
    LOG_OF,
    EXPIRED,
    STRANDED,
    PIN,
    PINNED,
    KEEP_PREDECESSOR,
    SUCCEED,
    SUCCEEDS,
    ENROL,
    HOLDER,
    RENEW,
    RELEASE,
    BURY,
    LEAD,
    RING,
    NEXT_DUE,
    UNKNOWNS,
    LOG_PAGE,
    LOG_PAGE_OF,
    ACCOUNT_COUNTS,
    ACCOUNT_FAULTS,
    WORK_COUNTS,
    LIVE,
];
