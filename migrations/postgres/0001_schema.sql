-- The same tables and columns as in migrations/sqlite, where they are explained. What differs by necessity: types (BYTEA,
-- BIGINT for times, SMALLINT for small numbers), how bytes are counted, and what keeps updates cheap here. Names are
-- compared byte by byte (COLLATE "C"), as SQLite does, whatever the database's own collation is.
CREATE TABLE notification (
    id              BYTEA    NOT NULL PRIMARY KEY CHECK (octet_length(id) = 16),
    tenant          TEXT     COLLATE "C" NOT NULL,
    key_h           BYTEA    NOT NULL CHECK (octet_length(key_h) = 16),
    event_h         BYTEA    NOT NULL CHECK (octet_length(event_h) = 16),
    event_id        TEXT     COLLATE "C" NOT NULL,
    kind            TEXT     COLLATE "C" NOT NULL,
    mask            TEXT     COLLATE "C" NOT NULL,
    fingerprint     BYTEA    NOT NULL,
    created_at      BIGINT   NOT NULL,
    expires_at      BIGINT   NOT NULL,
    finished_at     BIGINT,
    state           TEXT     COLLATE "C" NOT NULL
                             CHECK (state IN ('accepted', 'dispatching', 'retry_wait', 'dispatch_unknown',
                             'dispatched', 'failed', 'expired', 'cancelled', 'superseded')),
    sent            TEXT     COLLATE "C" NOT NULL CHECK (sent IN ('no', 'yes', 'unknown')),
    attempt         SMALLINT NOT NULL DEFAULT 0,
    sent_attempt    SMALLINT,
    open_attempt    SMALLINT,
    channel         TEXT     COLLATE "C" CHECK (channel IN ('sms', 'email')),
    delivered       BIGINT   NOT NULL DEFAULT 0,
    undelivered     BIGINT   NOT NULL DEFAULT 0,
    parts           BIGINT   NOT NULL DEFAULT 0,
    provider        TEXT     COLLATE "C",
    message_id      TEXT     COLLATE "C",
    receipt_key     TEXT     COLLATE "C",
    CHECK ((finished_at IS NOT NULL) = (state IN ('dispatched', 'failed', 'expired', 'cancelled', 'superseded')))
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX notification_key ON notification (tenant, key_h);
CREATE UNIQUE INDEX notification_event ON notification (tenant, event_h);
-- `provider` is not in it: every finished row sets that, and an update that touches a column of any index, even one with
-- a condition that leaves the row out, cannot stay in its page without new index entries (PostgreSQL, "Heap-Only Tuples").
CREATE INDEX notification_receipt ON notification (receipt_key) WHERE receipt_key IS NOT NULL;

CREATE TABLE work (
    id              BYTEA    NOT NULL PRIMARY KEY CHECK (octet_length(id) = 16),
    state           TEXT     COLLATE "C" NOT NULL
                             CHECK (state IN ('accepted', 'dispatching', 'retry_wait', 'dispatch_unknown',
                             'dispatched', 'failed', 'expired', 'cancelled', 'superseded')),
    sent            TEXT     COLLATE "C" NOT NULL CHECK (sent IN ('no', 'yes', 'unknown')),
    queue           TEXT     COLLATE "C",
    due_at          BIGINT   NOT NULL,
    expires_at      BIGINT   NOT NULL,
    ordered_at      BIGINT   NOT NULL,
    user_h          BYTEA    NOT NULL CHECK (octet_length(user_h) = 16),
    legs            BYTEA    NOT NULL,
    leg             SMALLINT NOT NULL,
    provider        TEXT     COLLATE "C" NOT NULL,
    owner           TEXT     COLLATE "C",
    claim           BIGINT,
    attempt         SMALLINT NOT NULL,
    used            SMALLINT NOT NULL,
    open_attempt    SMALLINT,
    sent_attempt    SMALLINT,
    probing         SMALLINT NOT NULL CHECK (probing IN (0, 1)),
    cancel_mark     SMALLINT NOT NULL CHECK (cancel_mark IN (0, 1)),
    supersede_mark  SMALLINT NOT NULL CHECK (supersede_mark IN (0, 1)),
    tries_here      SMALLINT NOT NULL,
    asked_attempt   SMALLINT,
    asked_account   BYTEA,
    asked_rev       BYTEA,
    first_there_at  BIGINT,
    ended_at        BIGINT,
    cause           TEXT     COLLATE "C",
    misses          SMALLINT NOT NULL DEFAULT 0,
    asks            INTEGER  NOT NULL DEFAULT 0,
    sealed_to       BYTEA    NOT NULL,
    sealed_message  BYTEA,
    CHECK (state <> 'dispatch_unknown' OR open_attempt IS NOT NULL),
    CHECK (state NOT IN ('accepted', 'retry_wait', 'dispatching') OR open_attempt IS NULL),
    CHECK (state NOT IN ('dispatched', 'failed', 'expired', 'cancelled', 'superseded') OR sealed_message IS NULL),
    CHECK (state <> 'dispatching' OR owner IS NOT NULL),
    CHECK ((owner IS NULL) = (claim IS NULL))
) WITH (
    fillfactor = 70,
    -- Every row comes and goes, most within a second: dead rows must not pile up before the rows that are due.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);
-- Sealed values do not compress.
ALTER TABLE work ALTER COLUMN sealed_to SET STORAGE EXTERNAL;
ALTER TABLE work ALTER COLUMN sealed_message SET STORAGE EXTERNAL;
CREATE INDEX work_due ON work (queue, due_at) WHERE queue IS NOT NULL;
CREATE INDEX work_user ON work (user_h);
CREATE INDEX work_expiry ON work (expires_at) WHERE state IN ('accepted', 'retry_wait', 'dispatch_unknown');
CREATE INDEX work_owner ON work (owner) WHERE owner IS NOT NULL;

CREATE TABLE log (
    pos             BIGINT   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              BIGINT   NOT NULL,
    tenant          TEXT     COLLATE "C" NOT NULL,
    notification    BYTEA,
    event_id        TEXT     COLLATE "C",
    what            TEXT     COLLATE "C" NOT NULL,
    from_state      TEXT     COLLATE "C",
    to_state        TEXT     COLLATE "C",
    sent            TEXT     COLLATE "C",
    delivery        TEXT     COLLATE "C",
    attempt         SMALLINT,
    provider        TEXT     COLLATE "C",
    message_id      TEXT     COLLATE "C",
    outcome         TEXT     COLLATE "C",
    reason          TEXT     COLLATE "C",
    source          TEXT     COLLATE "C",
    actor           TEXT     COLLATE "C" NOT NULL,
    address_h       BYTEA,
    ticket          TEXT     COLLATE "C"
);
CREATE INDEX log_notification ON log (notification, pos) WHERE notification IS NOT NULL;
CREATE FUNCTION log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the log is append-only'; END $$;
CREATE TRIGGER log_is_append_only BEFORE UPDATE OR DELETE ON log
    FOR EACH ROW EXECUTE FUNCTION log_is_append_only();
CREATE TRIGGER log_is_not_emptied BEFORE TRUNCATE ON log
    FOR EACH STATEMENT EXECUTE FUNCTION log_is_append_only();

CREATE TABLE unmatched_receipt (
    seq             BIGINT   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider        TEXT     COLLATE "C" NOT NULL,
    message_id      TEXT     COLLATE "C" NOT NULL,
    status          TEXT     COLLATE "C" NOT NULL CHECK (status IN ('progress', 'delivered', 'undelivered')),
    part            BIGINT   NOT NULL,
    parts           BIGINT   NOT NULL,
    received_at     BIGINT   NOT NULL,
    UNIQUE (provider, message_id, status, part, parts)
);

CREATE TABLE quota (
    scope_h         BYTEA    NOT NULL PRIMARY KEY CHECK (octet_length(scope_h) = 16),
    tat             BIGINT   NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE meta (
    name            TEXT     COLLATE "C" NOT NULL PRIMARY KEY,
    value           TEXT     COLLATE "C" NOT NULL
);
