-- In CHECKs and partial indexes SQLite builds a list of more than two values anew, as a table, for every row that is
-- written (`sqlite3CodeRhsOfIN`), which took half of the time of an insert: therefore comparisons, and no `IN`.

-- One row per acknowledged event, kept narrow: it is also the tombstone that recognises a late repeat.
-- Nothing that changes is indexed, so finishing a notification touches no index (but `receipt_key`, where a provider's
-- receipts name a message only by its own id).
CREATE TABLE notification (
    id              BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    tenant          TEXT    NOT NULL,
    key_h           BLOB    NOT NULL CHECK (length(key_h) = 16),
    event_h         BLOB    NOT NULL CHECK (length(event_h) = 16),
    event_id        TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    mask            TEXT    NOT NULL,
    fingerprint     BLOB    NOT NULL,
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    finished_at     INTEGER,
    state           TEXT    NOT NULL CHECK (state = 'accepted' OR state = 'dispatching' OR state = 'retry_wait'
                            OR state = 'dispatch_unknown' OR state = 'dispatched' OR state = 'failed'
                            OR state = 'expired' OR state = 'cancelled' OR state = 'superseded'),
    sent            TEXT    NOT NULL CHECK (sent = 'no' OR sent = 'yes' OR sent = 'unknown'),
    attempt         INTEGER  NOT NULL DEFAULT 0,
    sent_attempt    INTEGER,
    open_attempt    INTEGER,
    channel         TEXT             CHECK (channel IN ('sms', 'email')),
    delivered       INTEGER NOT NULL DEFAULT 0,
    undelivered     INTEGER NOT NULL DEFAULT 0,
    parts           INTEGER NOT NULL DEFAULT 0,
    provider        TEXT,
    message_id      TEXT,
    receipt_key     TEXT,
    CHECK ((finished_at IS NOT NULL) = (state = 'dispatched' OR state = 'failed' OR state = 'expired'
           OR state = 'cancelled' OR state = 'superseded'))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX notification_key ON notification (tenant, key_h);
CREATE UNIQUE INDEX notification_event ON notification (tenant, event_h);
CREATE INDEX notification_receipt ON notification (provider, receipt_key) WHERE receipt_key IS NOT NULL;

-- One row per notification of which something can still be done or asked. Finished means deleted, so history costs
-- nothing here and wiping the sealed values is the deletion (with secure_delete).
CREATE TABLE work (
    id              BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    state           TEXT    NOT NULL CHECK (state = 'accepted' OR state = 'dispatching' OR state = 'retry_wait'
                            OR state = 'dispatch_unknown' OR state = 'dispatched' OR state = 'failed'
                            OR state = 'expired' OR state = 'cancelled' OR state = 'superseded'),
    sent            TEXT    NOT NULL CHECK (sent = 'no' OR sent = 'yes' OR sent = 'unknown'),
    queue           TEXT,
    due_at          INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    ordered_at      INTEGER NOT NULL,
    user_h          BLOB    NOT NULL CHECK (length(user_h) = 16),
    legs            BLOB    NOT NULL,
    leg             INTEGER NOT NULL,
    provider        TEXT    NOT NULL,
    owner           TEXT,
    claim           INTEGER,
    attempt         INTEGER NOT NULL,
    used            INTEGER NOT NULL,
    open_attempt    INTEGER,
    sent_attempt    INTEGER,
    probing         INTEGER NOT NULL CHECK (probing IN (0, 1)),
    cancel_mark     INTEGER NOT NULL CHECK (cancel_mark IN (0, 1)),
    supersede_mark  INTEGER NOT NULL CHECK (supersede_mark IN (0, 1)),
    tries_here      INTEGER NOT NULL,
    asked_attempt   INTEGER,
    asked_account   BLOB,
    asked_rev       BLOB,
    first_there_at  INTEGER,
    ended_at        INTEGER,
    cause           TEXT,
    misses          INTEGER NOT NULL DEFAULT 0,
    asks            INTEGER NOT NULL DEFAULT 0,
    sealed_to       BLOB    NOT NULL,
    sealed_message  BLOB,
    CHECK (state <> 'dispatch_unknown' OR open_attempt IS NOT NULL),
    CHECK (open_attempt IS NULL OR (state <> 'accepted' AND state <> 'retry_wait' AND state <> 'dispatching')),
    CHECK (sealed_message IS NULL OR (state <> 'dispatched' AND state <> 'failed' AND state <> 'expired'
           AND state <> 'cancelled' AND state <> 'superseded')),
    CHECK (state <> 'dispatching' OR owner IS NOT NULL),
    CHECK ((owner IS NULL) = (claim IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX work_due ON work (queue, due_at) WHERE queue IS NOT NULL;
CREATE INDEX work_user ON work (user_h);
-- The sweeper looks often; without these it would read every waiting row, sealed values and all.
CREATE INDEX work_expiry ON work (expires_at) 
    WHERE state = 'accepted' OR state = 'retry_wait' OR state = 'dispatch_unknown';
CREATE INDEX work_owner ON work (owner) WHERE owner IS NOT NULL;

-- Append-only: the audit and the history of attempts in one.
CREATE TABLE log (
    pos             INTEGER PRIMARY KEY AUTOINCREMENT,
    at              INTEGER NOT NULL,
    tenant          TEXT    NOT NULL,
    notification    BLOB,
    event_id        TEXT,
    what            TEXT    NOT NULL,
    from_state      TEXT,
    to_state        TEXT,
    sent            TEXT,
    delivery        TEXT,
    attempt         INTEGER,
    provider        TEXT,
    message_id      TEXT,
    outcome         TEXT,
    reason          TEXT,
    source          TEXT,
    actor           TEXT    NOT NULL,
    address_h       BLOB,
    ticket          TEXT
) STRICT;
CREATE INDEX log_notification ON log (notification, pos) WHERE notification IS NOT NULL;
CREATE TRIGGER log_is_append_only_update BEFORE UPDATE ON log
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE TRIGGER log_is_append_only_delete BEFORE DELETE ON log
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;

-- Receipts that no notification matched yet: closed fields only, bounded by count and age.
CREATE TABLE unmatched_receipt (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    provider        TEXT    NOT NULL,
    message_id      TEXT    NOT NULL,
    status          TEXT    NOT NULL CHECK (status = 'progress' OR status = 'delivered'
                            OR status = 'undelivered'),
    part            INTEGER NOT NULL,
    parts           INTEGER NOT NULL,
    received_at     INTEGER NOT NULL,
    UNIQUE (provider, message_id, status, part, parts)
) STRICT;

-- Rate limits that survive a restart: the theoretical arrival time of a GCRA, by keyed hash of what is limited.
CREATE TABLE quota (
    scope_h         BLOB    NOT NULL PRIMARY KEY CHECK (length(scope_h) = 16),
    tat             INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which store this is. A copy restored from a backup has the same incarnation and an older high-water mark.
CREATE TABLE meta (
    name            TEXT    NOT NULL PRIMARY KEY,
    value           TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
